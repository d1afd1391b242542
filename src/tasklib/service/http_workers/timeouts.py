"""Timeouts of tasks that workers over HTTP run: the service ends the attempts, whatever the workers do."""

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
from tasklib.storage.operations.http_workers import EndedOvertime
from tasklib.storage.statement import Operation
from tasklib.worker.recording.metrics import Metrics

LOOK_SECONDS: Final = 5.0
"""The longest pause between two checks while workers over HTTP hold tasks that have a timeout."""
AWAY_SECONDS: Final = 1.0

log = logging.getLogger("tasklib.http")


class TimeoutService(ServicePart):
    """Ends attempts of workers over HTTP at their timeouts; idle while none of their tasks has one."""

    def __init__(self, queue: TaskQueue, metrics: Metrics, stopping: threading.Event) -> None:
        super().__init__(queue)
        self._metrics = metrics
        self._stopping = stopping
        self._watching: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def watch(self) -> None:
        """Watch from now on; called whenever a worker sends a request that shows that it holds tasks."""
        if self._watching is None or self._watching.done() or self._watching.get_loop().is_closed():
            self._changed = asyncio.Event()
            self._watching = asyncio.create_task(self._watch())
        self._changed.set()

    async def stop(self) -> None:
        """Stop watching in this event loop: after the queue has closed it would open connections again."""
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
        """End attempts that have passed their timeout; seconds until the next does, None if none has a timeout."""
        found = await self._aend_overtime()
        for task in found.ended:
            log.warning("task %s ran past its timeout on a worker over HTTP", task.id, extra={"task_id": str(task.id)})
            self._metrics.count(task.name, "failed" if task.completed_at else "retried", None, None)
        return found.next_in

    @operation
    def _end_overtime(self) -> Operation[EndedOvertime]:
        return (yield from http_workers.end_overtime(self.queue.config.backoff))

    _aend_overtime = _end_overtime.as_async
