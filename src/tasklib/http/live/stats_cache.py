"""How many tasks stand where, and where none of a state are: read for each request while tasks are few."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import timedelta
from typing import Final

from tasklib.core.task import QueueStats, TaskFilter
from tasklib.http.live.cache import OLDEST_SECONDS, CachedValue
from tasklib.service.pages import Gap, TaskPages
from tasklib.service.statistics import Statistics, takes_a_while

LONGEST_PAGE: Final = 101
MANY_NAMES: Final = 1000


class StatsCache:
    """The counts of a queue, exact and at most five seconds old; live ones are newer where counting takes no time."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics
        self._many_names = False
        self._stats = CachedValue(self._count, is_costly=lambda stats: takes_a_while(stats.total), prepare=self._keep)

    async def stats(self, *, live: bool = False) -> QueueStats:
        """How many tasks stand where; live for who watches them, but what needs them by the way need not wait."""
        return await self._stats.get(live=live)

    @property
    def live_max_age_seconds(self) -> int:
        """How old live ones may be."""
        return math.ceil(self._stats.lasts_seconds(live=True))

    async def _count(self) -> QueueStats:
        queue = self._statistics.queue
        # To put many names together takes its time, in which nobody else shall have to wait.
        stats = await (asyncio.to_thread(queue.stats) if self._many_names else queue.astats())
        self._many_names = len(stats.by_name) > MANY_NAMES
        return stats

    async def _keep(self) -> None:
        await self._statistics.akeep(fold_every=timedelta(seconds=1))


class GapCache:
    """Long stretches of the queue without a task in certain states: where a million wait, no completed one is."""

    def __init__(self, pages: TaskPages) -> None:
        self._pages = pages
        self._gaps: dict[tuple[str, ...], CachedValue[list[Gap]]] = {}
        self._without: dict[tuple[str, ...], float] = {}

    async def gap_for(self, which: TaskFilter) -> Gap | None:
        """The stretch that a list of these tasks may leave out; at most five seconds old."""
        if not which.states or self._pages.is_indexed(which):
            return None
        states = tuple(sorted(set(which.states)))
        if time.monotonic() < self._without.get(states, 0):
            return None
        if states not in self._gaps:  # never many: what can be asked for are sets of eight states
            self._gaps[states] = CachedValue(lambda: self._look(states), is_costly=bool)
        found = await self._gaps[states].get()
        if not found:
            self._without[states] = time.monotonic() + OLDEST_SECONDS
        return found[0] if found else None

    async def _look(self, states: tuple[str, ...]) -> list[Gap]:
        """The gap, if there is one: a value that is None counts as not read yet."""
        gap = await self._pages.alongest_gap(states, limit=LONGEST_PAGE)
        return [] if gap is None else [gap]
