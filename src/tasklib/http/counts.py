"""How many tasks stand where: counted for each request while they are few, else every few seconds."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Final

from tasklib.errors import TaskLibError
from tasklib.queue import TaskQueue
from tasklib.storage.operations import numbers, tasks
from tasklib.task import QueueStats

OLDEST_SECONDS: Final = 4.5
"""No count older than this is shown."""
PAUSE_SECONDS: Final = 1.5
INTEREST_SECONDS: Final = 600.0
"""For this long after the last request counting goes on, so that the next one need not wait."""


class Counts:
    """The counts of a queue, exact and at most five seconds old."""

    def __init__(self, queue: TaskQueue) -> None:
        self._queue = queue
        self._stats: QueueStats | None = None
        self._counted_at = self._asked_at = -1e9
        self._is_large = False
        self._counting: asyncio.Task[QueueStats] | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def stats(self) -> QueueStats:
        """How many tasks stand where."""
        self._asked_at = time.monotonic()
        if self._is_large and (self._keeping is None or self._keeping.done()):
            self._keeping = asyncio.create_task(self._keep())
        if self._is_large and self._stats is not None and self._asked_at - self._counted_at < OLDEST_SECONDS:
            return self._stats
        return await self._count()

    async def _count(self) -> QueueStats:
        """Count now; those who ask meanwhile share the answer, which is as new as theirs would be begun."""
        if self._counting is None or self._counting.done():
            self._counting = asyncio.create_task(self._read())
        return await asyncio.shield(self._counting)

    async def _read(self) -> QueueStats:
        queue, began = self._queue, time.monotonic()
        stats = await queue.database.arun(lambda: numbers.count_tasks_by_state(queue.clock.now()))
        # As old as its beginning: what happened since is not in it.
        self._stats, self._counted_at, self._is_large = stats, began, stats.total > tasks.FEW_ROWS
        return stats

    async def _keep(self) -> None:
        queue = self._queue
        while self._is_large and time.monotonic() - self._asked_at < INTEREST_SECONDS:
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                await queue.database.arun(
                    lambda: numbers.keep_books(queue.clock.now(), fold_every=timedelta(seconds=1))
                )
                await self._count()
            except TaskLibError:
                continue  # the database is away; requests say so
