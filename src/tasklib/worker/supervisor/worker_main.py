"""What runs in each worker process: a worker whose supervisor sends its heartbeats and sees that it is not blocked."""

from __future__ import annotations

import asyncio
import dataclasses
import faulthandler
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from tasklib.core.calls.own_tasks import own_task
from tasklib.core.timing import Timing
from tasklib.worker.settings import WorkerSettings
from tasklib.worker.signals import listen_to_stops
from tasklib.worker.supervisor.channel import Channel
from tasklib.worker.supervisor.heartbeat_proxy import introduce
from tasklib.worker.supervisor.proxied_heartbeat import SupervisorClient
from tasklib.worker.worker import Worker

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

TICKS_PER_LEASE = 10
MAX_TICK_SECONDS = 1.0
WATCHDOG = 1.5
"""Leases of silence after which the process ends itself, should no supervisor be there to do it."""

log = logging.getLogger("tasklib.worker")


def run_worker_process(
    queue: TaskQueue, settings: WorkerSettings, channel: Channel, begun: Callable[[str], None] = lambda worker_id: None
) -> None:
    """Work until the supervisor, a signal or stuck threads end it; raises what `Worker.run` raises.

    `begun` is called with the worker's id once it can be stopped by a signal.
    """
    faulthandler.enable()
    asyncio.run(_run(queue, settings, channel, begun))


class _Process:
    """This process, as its supervisor controls it."""

    def __init__(self, queue: TaskQueue, settings: WorkerSettings, channel: Channel) -> None:
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self.supervisor = SupervisorClient(channel, self)
        self.worker = Worker(queue, dataclasses.replace(settings, signals=False), self.supervisor)

    def drain(self) -> None:
        """Stop the worker; only without a supervisor does a second request mean now."""
        if not self.worker.is_stopping or self._channel.is_closed:
            self.worker.stop()

    def stop(self, *, now: bool) -> None:
        """The supervisor asks it to drain, or to end now."""
        self._soon(self._end_now if now else self.drain)

    def orphaned(self) -> None:
        """The supervisor has ended."""
        self._soon(self._end_orphaned)

    def _end_now(self) -> None:
        self.drain()
        self.worker.stop()

    def _end_orphaned(self) -> None:
        log.error("the supervisor is gone; this worker process drains and ends")
        self._loop.remove_reader(self._channel.fileno())
        if not self.worker.is_stopping:
            self.worker.stop()

    def _soon(self, act: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act)


async def _run(queue: TaskQueue, settings: WorkerSettings, channel: Channel, begun: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    process = _Process(queue, settings, channel)
    lease = queue.config.lock_timeout_seconds
    # A second signal does not mean now while there is a supervisor to say so.
    listen_to_stops(process.drain)
    channel.send("hello", config=introduce(queue.config, queue.database), lease=lease)
    loop.add_reader(channel.fileno(), process.supervisor.listen)
    ticking = own_task(_tick(process.supervisor, lease, queue.timing))
    working = own_task(process.worker.run())
    try:
        await asyncio.sleep(0)  # It has begun, and listens to signals.
        begun(process.worker.worker_id)
        await working
    finally:
        channel.send("ending")
        ticking.cancel()
        loop.remove_reader(channel.fileno())
        await queue.aclose()


async def _tick(supervisor: SupervisorClient, lease: float, timing: Timing) -> None:
    try:
        while True:
            supervisor.tick()
            # Runs without the interpreter, and so even when something holds it for ever.
            faulthandler.dump_traceback_later(WATCHDOG * lease, exit=True)
            await timing.sleep(min(MAX_TICK_SECONDS, lease / TICKS_PER_LEASE))
    finally:
        faulthandler.cancel_dump_traceback_later()
