"""Timeouts of tasks that workers over HTTP run: the service ends the attempts, whatever the worker does."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Final

from tasklib.errors import TaskLibError
from tasklib.queue import TaskQueue
from tasklib.queue.sync_async import operation
from tasklib.service.base import ServicePart
from tasklib.storage.operations import http_workers
from tasklib.storage.operations.http_workers import Overrun
from tasklib.storage.statement import Operation
from tasklib.worker.recording.metrics import Metrics

LOOK_SECONDS: Final = 5.0
"""How often the service looks at least while workers over HTTP hold tasks that have a timeout."""
AWAY_SECONDS: Final = 1.0

log = logging.getLogger("tasklib.http")


class TimeoutService(ServicePart):
    """Watches the time of what workers over HTTP run, while they run anything that has a timeout."""

    def __init__(self, queue: TaskQueue, metrics: Metrics, stopping: threading.Event) -> None:
        super().__init__(queue)
        self._metrics = metrics
        self._stopping = stopping
        self._watching: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def watch(self) -> None:
        """Watch from now on; asked for whenever a worker is heard of, because it may hold something."""
        if self._watching is None or self._watching.done() or self._watching.get_loop().is_closed():
            self._changed = asyncio.Event()
            self._watching = asyncio.create_task(self._watch())
        self._changed.set()

    async def stop(self) -> None:
        """End what goes on in the background of this event loop: after the queue has closed it would open it again."""
        watching = self._watching
        if watching is not None and watching.get_loop() is asyncio.get_running_loop():
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        while not self._stopping.is_set():
            self._changed.clear()
            try:
                left = await self.end()
            except TaskLibError as error:
                log.warning("cannot check for timed-out tasks, trying again: %s", error)
                left = AWAY_SECONDS
            if left is None and not self._changed.is_set():
                return
            await self.timing.wait(self._changed, max(0.01, min(left or 0.0, LOOK_SECONDS)))

    async def end(self) -> float | None:
        """End what is out of time now; seconds until the next is, None if nothing has a timeout."""
        found = await self._aend_overtime()
        for task in found.ended:
            log.warning("task %s ran past its timeout on a worker over HTTP", task.id, extra={"task_id": str(task.id)})
            self._metrics.count(task.name, "failed" if task.completed_at else "retried", None, None)
        return found.next_in

    @operation
    def _end_overtime(self) -> Operation[Overrun]:
        return (yield from http_workers.end_overtime(self.queue.config.backoff))

    _aend_overtime = _end_overtime.as_async
