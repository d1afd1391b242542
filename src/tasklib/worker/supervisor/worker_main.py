"""What runs in each worker process: a worker whose supervisor keeps its heartbeat and hears its event loop turn."""

from __future__ import annotations

import asyncio
import dataclasses
import faulthandler
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from tasklib.core.own_tasks import own_task
from tasklib.worker.settings import WorkerSettings
from tasklib.worker.signals import listen_to_stops
from tasklib.worker.supervisor.channel import Channel
from tasklib.worker.supervisor.heartbeat_proxy import introduce
from tasklib.worker.supervisor.proxied_heartbeat import SupervisorLink
from tasklib.worker.worker import Worker

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

TICKS_PER_LEASE = 10
MAX_TICK_SECONDS = 1.0
WATCHDOG = 1.5
"""Leases of silence after which the process ends itself, should no supervisor be there to do it."""

log = logging.getLogger("tasklib.worker")


def run_worker_process(
    queue: TaskQueue, settings: WorkerSettings, link: Channel, begun: Callable[[str], None] = lambda worker_id: None
) -> None:
    """Work until the supervisor, a signal or stuck threads end it; raises what `Worker.run` raises.

    `begun` is called with the worker's id once it can be stopped by a signal.
    """
    faulthandler.enable()
    asyncio.run(_run(queue, settings, link, begun))


async def _run(queue: TaskQueue, settings: WorkerSettings, link: Channel, begun: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()

    def drain() -> None:
        if not worker.is_stopping or link.is_cut:
            worker.stop()

    def hurry() -> None:
        drain()
        worker.stop()

    def orphaned() -> None:
        log.error("the supervisor is gone; this worker process drains and ends")
        loop.remove_reader(link.fileno())
        if not worker.is_stopping:
            worker.stop()

    def soon(act: Callable[[], None]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(act)

    supervisor = SupervisorLink(link, stop=lambda now: soon(hurry if now else drain), orphaned=lambda: soon(orphaned))
    worker = Worker(queue, dataclasses.replace(settings, signals=False), supervisor)
    lease = queue.config.lock_timeout_seconds
    # The supervisor says when to hurry; a second signal does not, while there is one.
    listen_to_stops(drain)
    link.send("hello", config=introduce(queue.config, queue.database), lease=lease)
    loop.add_reader(link.fileno(), supervisor.listen)
    ticking = own_task(_tick(supervisor, lease))
    working = own_task(worker.run())
    try:
        await asyncio.sleep(0)  # It has begun, and listens to signals.
        begun(worker.worker_id)
        await working
    finally:
        link.send("ending")
        ticking.cancel()
        loop.remove_reader(link.fileno())
        await queue.aclose()


async def _tick(supervisor: SupervisorLink, lease: float) -> None:
    try:
        while True:
            supervisor.tick()
            # Runs without the interpreter, and so even when something holds it for ever.
            faulthandler.dump_traceback_later(WATCHDOG * lease, exit=True)
            await asyncio.sleep(min(MAX_TICK_SECONDS, lease / TICKS_PER_LEASE))
    finally:
        faulthandler.cancel_dump_traceback_later()
