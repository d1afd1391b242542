"""The heartbeat of a worker process, which its supervisor sends, where user code cannot delay it."""

from __future__ import annotations

import threading
from typing import Protocol
from uuid import UUID

from tasklib.core.config import Config
from tasklib.core.timing import Steps, Timing
from tasklib.storage.database import Database
from tasklib.worker.supervisor.channel import Channel, Message
from tasklib.worker.upkeep.heartbeat import Heartbeat, HeartbeatOwner

PATIENCE = 0.6
"""The part of the worker timeout without a beat of the supervisor after which the worker sends its own, at the latest:
early enough to arrive before it would have to stop claiming."""


class SupervisedProcess(Protocol):
    """The worker process, as far as its supervisor decides about it; called in any thread."""

    def stop(self, *, now: bool) -> None:
        """The supervisor asks it to drain, or to end now."""

    def orphaned(self) -> None:
        """The supervisor has ended."""


class SupervisorClient:
    """The worker process's side of the channel to its supervisor; usable from any thread."""

    def __init__(self, channel: Channel, process: SupervisedProcess) -> None:
        self.running = channel.running
        self._channel = channel
        self._process = process
        self._lock = threading.Lock()
        self._is_orphaned = False
        self._instance: UUID | None = None
        self._owner: HeartbeatOwner | None = None
        self._beats: dict[str, Message] = {}

    def heartbeat(
        self, database: Database, timing: Timing, config: Config, instance: UUID, owner: HeartbeatOwner
    ) -> Heartbeat:
        """The heartbeat of an instance, which the supervisor sends."""
        return ProxiedHeartbeat(self, database, timing, config, instance, owner)

    @property
    def has_ended(self) -> bool:
        """True once the supervisor has ended without ending us."""
        return self._channel.is_closed

    def register_as(self, instance: UUID | None, owner: HeartbeatOwner | None = None) -> None:
        """Report which instance this process is registered as now, if any; every tick reports its state."""
        self._instance, self._owner = instance, owner
        self.tick()

    def tick(self) -> None:
        """Show that the event loop is not blocked."""
        instance = None if self._instance is None else str(self._instance)
        info = None if self._owner is None else self._owner.worker_info()
        self._channel.send("tick", instance=instance, worker_info=info)

    def last_beat(self, instance: UUID) -> Message | None:
        """The newest beat that the supervisor has sent on behalf of an instance, once."""
        self.listen()
        return self._beats.pop(str(instance), None)

    def listen(self) -> None:
        """Take in the supervisor's messages; if it has ended, say so to the process, once."""
        with self._lock:
            for message in self._channel.receive():
                if message["kind"] == "stop":
                    self._process.stop(now=message["now"])
                else:
                    # Only the latest counts, and of other instances than ours none.
                    self._beats = {message["instance"]: message}
            newly_orphaned = self._channel.is_closed and not self._is_orphaned
            self._is_orphaned = self._channel.is_closed
        if newly_orphaned:
            self._process.orphaned()


class ProxiedHeartbeat(Heartbeat):
    """Relies on the supervisor's beats while they come, and sends its own while they do not."""

    def __init__(
        self,
        supervisor: SupervisorClient,
        database: Database,
        timing: Timing,
        config: Config,
        instance: UUID,
        owner: HeartbeatOwner,
    ) -> None:
        super().__init__(database, timing, config, instance, owner)
        self._supervisor = supervisor

    def start(self) -> None:
        """Ask the supervisor to send beats for this instance."""
        self._supervisor.register_as(self.instance, self.owner)
        super().start()

    def cease(self) -> None:
        """Let the supervisor send no more of them."""
        self._supervisor.register_as(None)
        super().cease()

    @property
    def silence(self) -> float:
        """As in Heartbeat, after taking in beats that came while this process could not listen."""
        self._take_in_beats()
        return super().silence

    def _rest(self) -> Steps:
        while not self._is_over:
            yield self._interval / 4
            self._take_in_beats()
            patience = (
                self._interval if self._supervisor.has_ended else min(2 * self._interval, PATIENCE * self._timeout)
            )
            if self._timing.monotonic() - self._last >= patience:
                return

    def _take_in_beats(self) -> None:
        beat = self._supervisor.last_beat(self.instance)
        if beat is not None:
            self._arrived(beat["asked"], known=beat["known"], unbroken_since=beat["since"])
