"""Taking over from workers that are gone.  Any worker does it; there is no leader."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import datetime

from tasklib.retry import Backoff
from tasklib.storage.database import Database
from tasklib.storage.operations import workers
from tasklib.worker.periodic import Periodic

SWEEPS = 3
"""About this many workers of a fleet look for passed leases in each interval; looking by all of them is not needed."""
ORPHANS_EVERY = 6
"""Every so many intervals, on average over the fleet, one looks at a part of the table for tasks that nobody holds."""

log = logging.getLogger("tasklib.worker")


class Reaper(Periodic):
    """Finds the tasks of dead workers, and those whose lease has passed, and lets them run again."""

    def __init__(
        self,
        database: Database,
        *,
        interval_seconds: float,
        backoff: Backoff,
        may_judge: Callable[[], bool],
        now: Callable[[], datetime | None],
    ) -> None:
        super().__init__()
        self.interval = interval_seconds
        self._database = database
        self._backoff = backoff
        self._may_judge = may_judge
        self._now = now
        self.fleet = 1
        """How many workers are alive, as far as this one has looked."""
        self._orphans_before: int | None = None

    async def first_sweep(self) -> None:
        """Take back orphans: tasks nobody known holds, whose lease has passed.  Needs no judgement of others."""
        await self._recover_orphans()

    async def step(self) -> None:
        """Recover once, if this worker's own heartbeat has held for long enough to judge that of others."""
        if not self._may_judge():
            return
        fleet = await self._database.arun(lambda: workers.count_workers(self._now()))
        self.fleet = max(1, fleet.alive)
        leases = random.random() < SWEEPS / self.fleet
        if fleet.silent or leases:
            self._tell(
                await self._database.arun(lambda: workers.recover_tasks(self._backoff, self._now(), leases=leases))
            )
        if random.random() < 1 / (ORPHANS_EVERY * self.fleet):
            await self._recover_orphans()

    async def _recover_orphans(self) -> None:
        before = self._orphans_before
        recovery = await self._database.arun(lambda: workers.recover_orphans(self._backoff, self._now(), before=before))
        self._orphans_before = recovery.before
        self._tell(recovery)

    def _tell(self, recovery: workers.Recovery) -> None:
        if recovery.tasks:
            log.warning("recovered %d tasks from workers that are gone", recovery.tasks)
