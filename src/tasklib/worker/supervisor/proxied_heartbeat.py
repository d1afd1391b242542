"""The heartbeat of a worker process under a supervisor, which beats in its name where user code cannot starve it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from uuid import UUID

from tasklib.core.clock import Clock
from tasklib.core.config import Config
from tasklib.storage.database import Database
from tasklib.worker.supervisor.channel import Channel, Message
from tasklib.worker.upkeep.heartbeat import Heartbeat, HeartbeatOwner

PATIENCE = 0.6
"""The part of the worker timeout without word from the supervisor after which the worker beats itself, at the latest:
early enough to be heard before it would have to stop claiming."""


class SupervisorLink:
    """What a worker process knows of its supervisor; usable from any thread."""

    def __init__(self, link: Channel, *, stop: Callable[[bool], None], orphaned: Callable[[], None]) -> None:
        """`stop` is called when the supervisor says so, with whether it shall be now; `orphaned` when it is gone."""
        self.running = link.running
        self._link = link
        self._stop = stop
        self._orphaned = orphaned
        self._lock = threading.Lock()
        self._told = False
        self._instance: UUID | None = None
        self._owner: HeartbeatOwner | None = None
        self._beats: dict[str, Message] = {}

    def heartbeat(
        self, database: Database, clock: Clock, config: Config, instance: UUID, owner: HeartbeatOwner
    ) -> Heartbeat:
        """The heartbeat of an instance, which the supervisor keeps up."""
        return ProxiedHeartbeat(self, database, clock, config, instance, owner)

    @property
    def is_gone(self) -> bool:
        """True once the supervisor has ended without ending us."""
        return self._link.is_cut

    def live_as(self, instance: UUID | None, owner: HeartbeatOwner | None = None) -> None:
        """Say as which instance this process lives now, if any, and with every tick how it is."""
        self._instance, self._owner = instance, owner
        self.tick()

    def tick(self) -> None:
        """Show that the event loop turns."""
        instance = None if self._instance is None else str(self._instance)
        info = None if self._owner is None else self._owner.worker_info()
        self._link.send("tick", instance=instance, worker_info=info)

    def last_beat(self, instance: UUID) -> Message | None:
        """The newest beat that the supervisor has sent in the name of an instance, once."""
        self.listen()
        return self._beats.pop(str(instance), None)

    def listen(self) -> None:
        """Take in what the supervisor has said; if it is gone, call `orphaned`, once."""
        with self._lock:
            for message in self._link.receive():
                if message["kind"] == "stop":
                    self._stop(message["now"])
                else:
                    # Only the latest counts, and of other instances than ours none.
                    self._beats = {message["instance"]: message}
            orphaned = self._link.is_cut and not self._told
            self._told = self._told or orphaned
        if orphaned:
            self._orphaned()


class ProxiedHeartbeat(Heartbeat):
    """Trusts the supervisor's beats while they come, and beats itself while they do not."""

    def __init__(
        self,
        supervisor: SupervisorLink,
        database: Database,
        clock: Clock,
        config: Config,
        instance: UUID,
        owner: HeartbeatOwner,
    ) -> None:
        super().__init__(database, clock, config, instance, owner)
        self._supervisor = supervisor

    def start(self) -> None:
        """Ask the supervisor to beat for this instance."""
        self._supervisor.live_as(self.instance, self.owner)
        super().start()

    def stop(self) -> None:
        """Let the supervisor stop beating for it."""
        self._supervisor.live_as(None)
        super().stop()

    @property
    def silence(self) -> float:
        """As in Heartbeat.  Beats that came while this process could not listen are heard first."""
        self._hear()
        return super().silence

    def _rest(self) -> bool:
        while not self._stopped.wait(self._interval / 4):
            self._hear()
            patience = self._interval if self._supervisor.is_gone else min(2 * self._interval, PATIENCE * self._timeout)
            if time.monotonic() - self._last >= patience:
                return False
        return True

    def _hear(self) -> None:
        beat = self._supervisor.last_beat(self.instance)
        if beat is not None:
            self._arrived(beat["asked"], known=beat["known"], unbroken_since=beat["since"])
