"""Removing finished tasks after their retention.  Any worker does it, one at a time; there is no leader."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tasklib.core.retention import Rule
from tasklib.queue import TaskQueue
from tasklib.storage.operations import retention
from tasklib.storage.operations.retention import Swept
from tasklib.worker.upkeep.service import Periodic

EVERY_SECONDS = 30.0
TURN_SECONDS = 60.0
"""How long the others wait for a worker that may have died during its sweep."""
REST = 29.0
"""The pause after each page, as a multiple of the time it took: a sweep uses about 3 % of one connection's time."""

log = logging.getLogger("tasklib.worker")


class RetentionService(Periodic):
    """Deletes finished tasks whose retention has passed, page by page."""

    def __init__(self, queue: TaskQueue, rules: Sequence[Rule]) -> None:
        super().__init__(queue, EVERY_SECONDS)
        self._rules = rules

    async def step(self) -> None:
        """Sweep all rows that may be old enough, once, unless another worker does."""
        deleted = 0
        while (swept := await self.sweep_page()) is not None:
            deleted += swept.deleted
            if not swept.more:
                break
        if deleted:
            log.info("removed %d finished tasks whose retention has passed", deleted)

    async def sweep_page(self) -> Swept | None:
        """Sweep the next rows, and pause; None while another worker sweeps."""
        began = self.timing.monotonic()
        swept = await self.database.arun(lambda: retention.sweep_tasks(self._rules, TURN_SECONDS))
        await self.timing.sleep(min(1.0, REST * (self.timing.monotonic() - began)))
        return swept
