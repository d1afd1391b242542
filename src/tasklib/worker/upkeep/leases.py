"""Leases: as long as this worker lives, nobody else may run what it holds."""

from __future__ import annotations

from tasklib.core.timing import Timing
from tasklib.storage.database import Database
from tasklib.storage.operations import attempts
from tasklib.worker.execution.held_tasks import HeldTasks
from tasklib.worker.upkeep.service import Periodic


class LeaseRenewal(Periodic):
    """Moves the lease of everything held forward, three times before it would end."""

    def __init__(self, database: Database, timing: Timing, held: HeldTasks, *, lease_seconds: float) -> None:
        super().__init__(timing)
        self.interval = lease_seconds / 3
        self._database = database
        self._held = held
        self._lease = lease_seconds

    async def step(self) -> None:
        """Renew once, and drop what is no longer this worker's."""
        held = [(task.id, task.version) for task in self._held.tasks()]
        if held:
            lost, _ = await self._database.arun(lambda: attempts.renew_leases(held, lease_seconds=self._lease))
            self._held.drop(lost)
