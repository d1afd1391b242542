"""Delivering events that were emitted by SQL or in somebody's transaction.  Any worker does it; twice is harmless."""

from __future__ import annotations

from tasklib.queue import TaskQueue
from tasklib.storage.operations.workflows import events
from tasklib.worker.control import Calls
from tasklib.worker.upkeep.service import OnCall


class EventDelivery(OnCall):
    """Delivers events that nobody has delivered: when the database announces one, or a look has found some."""

    def __init__(self, queue: TaskQueue, calls: Calls) -> None:
        super().__init__(queue, calls, calls.events_emitted)

    async def step(self) -> None:
        """Deliver what there is."""
        while await self.database.arun(events.deliver_new):
            pass
