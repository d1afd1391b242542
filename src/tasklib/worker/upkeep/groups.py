"""Adding up how children ended, and telling the workflows that wait for them.  Any worker does it; nobody leads."""

from __future__ import annotations

import asyncio

from tasklib.queue import TaskQueue
from tasklib.storage.operations.workflows.groups import fold_groups
from tasklib.worker.upkeep.service import Periodic

PAUSE_SECONDS = 0.02
"""Between two folds, so that ends of many children share one."""


class GroupFold(Periodic):
    """Folds soon after a child has ended here, and now and then for those that ended elsewhere or by other means."""

    def __init__(self, queue: TaskQueue, ended: asyncio.Event) -> None:
        """`ended` is set when a child has ended here."""
        super().__init__(queue, queue.config.poll_interval_seconds)
        self._ended = ended

    async def rest(self) -> None:
        """Return when a child has ended, or after a while."""
        if await self.timing.wait(self._ended, self.pause()):
            await self.timing.sleep(PAUSE_SECONDS)
        self._ended.clear()

    async def step(self) -> None:
        """Fold until nothing is left."""
        while await self.database.arun(fold_groups):
            await self.timing.sleep(PAUSE_SECONDS)
