"""How many tasks stand where, and where none of a state are: read for each request while tasks are few."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import timedelta
from typing import Final

from tasklib.core.task import QueueStats, TaskFilter
from tasklib.http.live.cache import OLDEST_SECONDS, Fresh
from tasklib.queue import TaskQueue
from tasklib.storage.operations import lists, statistics
from tasklib.storage.operations.block_index import Gap
from tasklib.storage.operations.scan import SURVEY, Walk, walk_tasks

LONGEST_PAGE: Final = 101
MANY_NAMES: Final = 1000


class Counts:
    """The counts of a queue, exact and at most five seconds old; live ones are newer where counting takes no time."""

    def __init__(self, queue: TaskQueue) -> None:
        self._queue = queue
        self._many_names = False
        self._stats = Fresh(
            self._count, is_costly=lambda stats: stats.total > lists.FEW_ROWS, prepare=self._keep_statistics
        )

    async def stats(self, *, live: bool = False) -> QueueStats:
        """How many tasks stand where; live for who watches them, but what needs them by the way need not wait."""
        return await self._stats.get(live=live)

    @property
    def live_max_age_seconds(self) -> int:
        """How old live ones may be."""
        return math.ceil(self._stats.lasts_seconds(live=True))

    async def _count(self) -> QueueStats:
        database, now = self._queue.database, self._queue.clock.now()
        if not self._many_names:
            stats = await database.arun(lambda: statistics.count_tasks_by_state(now))
        else:  # to put them together takes its time, in which nobody else shall have to wait
            stats = await asyncio.to_thread(database.run, lambda: statistics.count_tasks_by_state(now))
        self._many_names = len(stats.by_name) > MANY_NAMES
        return stats

    async def _keep_statistics(self) -> None:
        fold_every = timedelta(seconds=1)
        await self._queue.database.arun(
            lambda: statistics.keep_statistics(self._queue.clock.now(), fold_every=fold_every)
        )


class Gaps:
    """Long stretches of the queue without a task in certain states: where a million wait, no completed one is."""

    def __init__(self, queue: TaskQueue) -> None:
        self._queue = queue
        self._walks: dict[tuple[str, ...], Fresh[Walk]] = {}
        self._without: dict[tuple[str, ...], float] = {}

    async def gap_for(self, which: TaskFilter) -> Gap | None:
        """The stretch that a list of these tasks may leave out; at most five seconds old."""
        if not which.states or lists.is_indexed(which):
            return None
        states = tuple(sorted(set(which.states)))
        if time.monotonic() < self._without.get(states, 0):
            return None
        if states not in self._walks:  # never many: what can be asked for are sets of eight states
            self._walks[states] = Fresh(lambda: self._walk(states), is_costly=lambda walk: walk.gap is not None)
        gap = (await self._walks[states].get()).gap
        if gap is None:
            self._without[states] = time.monotonic() + OLDEST_SECONDS
        return gap

    async def _walk(self, states: tuple[str, ...]) -> Walk:
        which, now = TaskFilter(states=states), self._queue.clock.now()
        return await self._queue.database.arun(lambda: walk_tasks(which, now, limit=LONGEST_PAGE, bounds=SURVEY))
