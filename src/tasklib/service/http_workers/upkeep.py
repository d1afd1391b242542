"""The upkeep that workers do for the whole queue, done by the service in case all workers use HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from tasklib.queue import TaskQueue
from tasklib.service.base import ServicePart
from tasklib.service.statistics import Statistics
from tasklib.worker.control import WorkflowSignals
from tasklib.worker.recording.metrics import Metrics
from tasklib.worker.upkeep.events import EventDelivery
from tasklib.worker.upkeep.groups import GroupFold
from tasklib.worker.upkeep.metrics import flush
from tasklib.worker.upkeep.recovery import Recovery
from tasklib.worker.upkeep.service import Periodic

CARE_SECONDS: Final = 5.0
"""How often schedules are run and statistics kept, at most."""


class Upkeep(ServicePart):
    """Recovers the tasks of dead workers, runs schedules, folds groups, delivers events and keeps the statistics, while
    workers over HTTP send requests."""

    def __init__(self, queue: TaskQueue, metrics: Metrics) -> None:
        super().__init__(queue)
        self._metrics = metrics
        self._statistics = Statistics(queue)
        self._next = 0.0
        self._watching: asyncio.AbstractEventLoop | None = None
        self._services: Sequence[Periodic] = ()
        self._signals = WorkflowSignals(queue.timing)

    def watch(self) -> None:
        """Start the services that must look at regular intervals, however requests arrive, unless they run already."""
        loop = asyncio.get_running_loop()
        if self._watching is not loop:
            self._watching = loop
            signals = self._signals = WorkflowSignals(self.queue.timing)
            self._services = (Recovery(self.queue), GroupFold(self.queue, signals), EventDelivery(self.queue, signals))
            for service in self._services:
                service.start()

    def child_ended(self) -> None:
        """Fold groups soon, because a task that a workflow may wait for has ended."""
        self._signals.children_ended.set()

    async def care(self) -> None:
        """Start the services, and do the rest of the upkeep unless it was done within CARE_SECONDS."""
        self.watch()
        now = self.timing.monotonic()
        if now < self._next:
            return
        self._next = now + CARE_SECONDS
        await self.queue.afire_schedules()
        await flush(self.database, self._metrics)
        await self._statistics.akeep()

    async def stop(self) -> None:
        """Stop the services in this event loop."""
        if self._watching is asyncio.get_running_loop():
            self._watching = None
            for service in self._services:
                await service.stop()
