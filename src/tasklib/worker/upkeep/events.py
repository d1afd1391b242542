"""Delivering events that were told by SQL or in somebody's transaction.  Any worker does it; twice is harmless."""

from __future__ import annotations

import asyncio

from tasklib.queue import TaskQueue
from tasklib.storage.operations.workflows import events
from tasklib.worker.upkeep.service import Periodic


class EventDelivery(Periodic):
    """Looks for events that nobody has delivered: when the database announces one, and now and then."""

    def __init__(self, queue: TaskQueue) -> None:
        super().__init__(queue, queue.config.poll_interval_seconds)
        self._announced = asyncio.Event()

    def announced(self) -> None:
        """Look now."""
        self._announced.set()

    async def rest(self) -> None:
        """Return when an event was announced, or after a while."""
        await self.timing.wait(self._announced, self.pause())
        self._announced.clear()

    async def step(self) -> None:
        """Deliver what there is."""
        while await self.database.arun(events.deliver_new):
            pass
