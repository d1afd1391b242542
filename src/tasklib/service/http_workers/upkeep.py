"""What every worker does for all, done by the service: workers that speak HTTP may be the only ones there are."""

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


class Upkeep(ServicePart):
    """Takes over from dead workers, runs schedules, adds up children, delivers events and keeps the statistics, while
    workers over HTTP are heard of."""

    def __init__(self, queue: TaskQueue, metrics: Metrics) -> None:
        super().__init__(queue)
        self._metrics = metrics
        self._statistics = Statistics(queue)
        self._next = 0.0
        self._watching: asyncio.AbstractEventLoop | None = None
        self._services: Sequence[Periodic] = ()
        self._signals = WorkflowSignals(queue.timing)

    def watch(self) -> None:
        """Take over from the dead from now on, in the background: that takes regular looks, and requests come as they
        please."""
        loop = asyncio.get_running_loop()
        if self._watching is not loop:
            self._watching = loop
            signals = self._signals = WorkflowSignals(self.queue.timing)
            self._services = (Recovery(self.queue), GroupFold(self.queue, signals), EventDelivery(self.queue, signals))
            for service in self._services:
                service.start()

    def child_ended(self) -> None:
        """Tell the workflow that waits for it, if that is so, soon."""
        self._signals.children_ended.set()

    async def care(self) -> None:
        """Do the rest, if it was not done a moment ago."""
        self.watch()
        now = self.timing.monotonic()
        if now < self._next:
            return
        self._next = now + CARE_SECONDS
        await self.queue.afire_schedules()
        await flush(self.database, self._metrics)
        await self._statistics.akeep()

    async def stop(self) -> None:
        """End what goes on in the background of this event loop."""
        if self._watching is asyncio.get_running_loop():
            self._watching = None
            for service in self._services:
                await service.stop()
