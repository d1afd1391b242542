"""The main program of each worker process: a worker whose supervisor sends its heartbeats and watches its event
loop."""

from __future__ import annotations

import asyncio
import dataclasses
import faulthandler
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import UUID

from tasklib.core.calls.own_tasks import own_task
from tasklib.core.config import Config
from tasklib.core.time.event_loop import run
from tasklib.core.time.timing import Steps, Timing
from tasklib.storage.database import Database
from tasklib.worker.settings import WorkerSettings
from tasklib.worker.signals import listen_to_stops
from tasklib.worker.supervisor.channel import Message, SupervisorChannel
from tasklib.worker.upkeep.heartbeat import Heartbeat, HeartbeatOwner
from tasklib.worker.worker import Worker

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

TICKS_PER_LEASE = 10
MAX_TICK_SECONDS = 1.0
WATCHDOG = 1.5
"""Leases without a tick after which the process ends itself, in case no supervisor is there to do it."""
PATIENCE = 0.6
"""The part of the worker timeout without a heartbeat from the supervisor after which the worker sends its own: early
enough to arrive before it would have to stop claiming."""

log = logging.getLogger("tasklib.worker")


def run_worker_process(
    queue: TaskQueue,
    settings: WorkerSettings,
    channel: SupervisorChannel,
    begun: Callable[[str], None] = lambda worker_id: None,
) -> None:
    """Work until the supervisor, a signal or stuck threads end it; raises what `Worker.run` raises.

    `begun` is called with the worker's id once it can be stopped by a signal.
    """
    faulthandler.enable()
    run(_run(queue, settings, channel, begun))


async def _run(
    queue: TaskQueue, settings: WorkerSettings, channel: SupervisorChannel, begun: Callable[[str], None]
) -> None:
    lease = queue.config.lock_timeout_seconds
    supervisor = SupervisorClient(channel)
    worker = Worker(queue, dataclasses.replace(settings, signals=False), supervisor)
    # With a supervisor, a second signal does not mean "now": the supervisor says when.
    listen_to_stops(supervisor.drain)
    channel.notify("hello", config=_reachable(queue.config, queue.database), lease=lease)
    supervisor.control(worker)
    ticking = own_task(_tick(supervisor, lease, queue.timing))
    working = own_task(worker.run())
    try:
        await asyncio.sleep(0)  # It runs, and signals stop it.
        begun(worker.worker_id)
        await working
    finally:
        supervisor.report()
        channel.notify("ending")
        ticking.cancel()
        asyncio.get_running_loop().remove_reader(channel)
        await queue.aclose()


async def _tick(supervisor: SupervisorClient, lease: float, timing: Timing) -> None:
    try:
        while True:
            supervisor.tick()
            supervisor.report()
            # faulthandler's timer needs no interpreter, so it works even if something holds the GIL for ever.
            faulthandler.dump_traceback_later(WATCHDOG * lease, exit=True)
            await timing.sleep(min(MAX_TICK_SECONDS, lease / TICKS_PER_LEASE))
    finally:
        faulthandler.cancel_dump_traceback_later()


def _reachable(config: Config, database: Database) -> dict[str, Any] | None:
    """What a supervisor must know to reach the database; None if it cannot."""
    if config.is_sqlite:
        path = getattr(database, "path", None)
        if path is None:
            return None
        # The path as resolved at the start: the program may have called os.chdir since.
        config = config.with_(database_url=f"sqlite:///{quote(str(path))}")
    return dataclasses.asdict(config.with_(auto_migrate=False))


class SupervisorClient:
    """The worker process's side of the channel to its supervisor, which controls it; usable from any thread."""

    def __init__(self, channel: SupervisorChannel) -> None:
        self.running = channel.running
        self._channel = channel
        self._lock = threading.Lock()
        self._is_orphaned = False
        self._worker: Worker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._instance: UUID | None = None
        self._owner: HeartbeatOwner | None = None
        self._beats: dict[str, Message] = {}
        self._beaten: float | None = None
        self._reported: dict[str, Any] = {}

    def control(self, worker: Worker) -> None:
        """Carry out the supervisor's requests for this worker, on this event loop."""
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._channel, self.listen)

    def heartbeat(
        self, database: Database, timing: Timing, config: Config, instance: UUID, owner: HeartbeatOwner
    ) -> Heartbeat:
        """A heartbeat for the instance that the supervisor sends on its behalf."""
        return ProxiedHeartbeat(self, database, timing, config, instance, owner)

    @property
    def has_ended(self) -> bool:
        """True once the supervisor has ended without ending us."""
        return self._channel.is_closed

    def register_as(self, instance: UUID | None, owner: HeartbeatOwner | None = None) -> None:
        """Report which instance this process is registered as now, if any; every tick reports its state."""
        self._instance, self._owner, self._beaten = instance, owner, None
        self.tick()

    def tick(self) -> None:
        """Report that the event loop is not blocked."""
        instance = None if self._instance is None else str(self._instance)
        info = None if self._owner is None else self._owner.worker_info()
        self._channel.notify("tick", instance=instance, worker_info=info, beaten=self._beaten)

    def beaten(self, asked: float) -> None:
        """Report that the worker has sent a heartbeat itself at this time: the supervisor's next one is due later."""
        self._beaten = asked
        self.tick()

    def report(self) -> None:
        """Report the worker's counts since it started, if they changed; called on the event loop."""
        if self._worker is not None:
            done = self._worker.report()
            if done != self._reported:
                self._channel.notify("report", **done)
                self._reported = done

    def last_beat(self, instance: UUID) -> Message | None:
        """The newest heartbeat that the supervisor has sent for an instance; each is returned once."""
        self.listen()
        return self._beats.pop(str(instance), None)

    def listen(self) -> None:
        """Receive the supervisor's messages, and notice that it has ended."""
        with self._lock:
            for message in self._channel.receive():
                if message["kind"] == "stop":
                    self.stop(now=message["now"])
                else:
                    # Only the latest counts, and only for our current instance.
                    self._beats = {message["instance"]: message}
            newly_orphaned = self._channel.is_closed and not self._is_orphaned
            self._is_orphaned = self._channel.is_closed
        if newly_orphaned:
            self.end_orphaned()

    def drain(self) -> None:
        """Stop the worker; only without a supervisor does a second request mean now."""
        if self._worker is not None and (not self._worker.is_stopping or self._channel.is_closed):
            self._worker.stop()

    def stop(self, *, now: bool) -> None:
        """Handle the supervisor's request to drain, or to end now."""
        self._soon(self._end_now if now else self.drain)

    def end_orphaned(self) -> None:
        """Drain and end, because the supervisor has ended."""
        self._soon(self._end_orphaned)

    def _end_now(self) -> None:
        self.drain()
        if self._worker is not None:
            self._worker.stop()

    def _end_orphaned(self) -> None:
        log.error("the supervisor is gone; this worker process drains and ends")
        asyncio.get_running_loop().remove_reader(self._channel)
        if self._worker is not None and not self._worker.is_stopping:
            self._worker.stop()

    def _soon(self, act: Callable[[], None]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act)


class ProxiedHeartbeat(Heartbeat):
    """Relies on the supervisor's heartbeats while they arrive, and sends its own while they do not."""

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
        """Ask the supervisor to send heartbeats for this instance."""
        self._supervisor.register_as(self.instance, self.owner)
        super().start()

    def cease(self) -> None:
        """Ask the supervisor to send no more heartbeats."""
        self._supervisor.register_as(None)
        super().cease()

    @property
    def silence(self) -> float:
        """As in Heartbeat, after receiving heartbeats that arrived while this process was blocked."""
        self._take_in_beats()
        return super().silence

    def came_with_poll(self, asked: float, *, known: bool) -> None:
        """As in Heartbeat; the supervisor is notified."""
        super().came_with_poll(asked, known=known)
        self._supervisor.beaten(asked)

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
