"""Delivering events that were emitted by SQL or inside a caller's transaction.  Any worker does it; twice is
harmless."""

from __future__ import annotations

from tasklib.queue import TaskQueue
from tasklib.storage.operations.workflows import events
from tasklib.worker.control import WorkflowSignals
from tasklib.worker.upkeep.service import OnSignal


class EventDelivery(OnSignal):
    """Delivers events that are still undelivered, when the database announces one or a poll has found some."""

    def __init__(self, queue: TaskQueue, signals: WorkflowSignals) -> None:
        super().__init__(queue, signals, signals.events_emitted)

    async def step(self) -> None:
        """Deliver all undelivered events."""
        while await self.database.arun(events.deliver_new):
            pass
