"""Leases: as long as this worker lives, nobody else may run what it holds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from tasklib.storage.database import Database
from tasklib.storage.operations import attempts
from tasklib.worker.intake.held_tasks import HeldTasks
from tasklib.worker.upkeep.service import Periodic


class LeaseRenewal(Periodic):
    """Moves the lease of everything in hand forward, three times before it would end."""

    def __init__(
        self, database: Database, hand: HeldTasks, *, lease_seconds: float, now: Callable[[], datetime | None]
    ) -> None:
        super().__init__()
        self.interval = lease_seconds / 3
        self._database = database
        self._hand = hand
        self._lease = lease_seconds
        self._now = now

    async def step(self) -> None:
        """Renew once, and let go of what is no longer ours."""
        held = [(task.id, task.version) for task in self._hand.held()]
        if held:
            lost, _ = await self._database.arun(
                lambda: attempts.renew_leases(held, lease_seconds=self._lease, now=self._now())
            )
            self._hand.drop(lost)
