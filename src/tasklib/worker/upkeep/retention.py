"""Removing finished tasks when their time is up.  Any worker does it, one at a time; there is no leader."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from tasklib.core.clock import Clock
from tasklib.core.retention import Rule
from tasklib.storage.database import Database
from tasklib.storage.operations import retention
from tasklib.storage.operations.retention import Swept
from tasklib.worker.upkeep.service import Periodic

EVERY_SECONDS = 30.0
TURN_SECONDS = 60.0
"""A worker that dies in its turn is replaced after so long."""
REST = 29.0
"""After each page it rests so many times as long as that took: it takes a thirtieth of one connection at most."""

log = logging.getLogger("tasklib.worker")


class RetentionService(Periodic):
    """Looks through the table for tasks that have been kept for long enough."""

    def __init__(self, database: Database, clock: Clock, rules: Sequence[Rule]) -> None:
        super().__init__()
        self.interval = EVERY_SECONDS
        self._database = database
        self._rules = rules
        self._now = clock.now

    async def step(self) -> None:
        """Go through the rows that can be old enough once, unless somebody else does."""
        deleted = 0
        while (swept := await self.sweep_page()) is not None:
            deleted += swept.deleted
            if not swept.more:
                break
        if deleted:
            log.info("removed %d finished tasks whose retention has passed", deleted)

    async def sweep_page(self) -> Swept | None:
        """Look at the next rows, and rest; None if it is another worker's turn."""
        began = time.monotonic()
        swept = await self._database.arun(lambda: retention.sweep_tasks(self._rules, TURN_SECONDS, self._now()))
        await asyncio.sleep(min(1.0, REST * (time.monotonic() - began)))
        return swept
