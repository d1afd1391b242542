"""Cached values: those that are costly to read are read in the background, so that no request waits for them."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, Generic, ParamSpec, TypeVar
from uuid import UUID

from tasklib.core.queue_info import ErrorGroup, QueueStats, TaskFilter
from tasklib.core.time.timing import Timing
from tasklib.errors import TaskLibError
from tasklib.service.error_groups import MOST_GROUPS, ErrorGroups
from tasklib.service.insights.objectives import Objectives, ObjectiveStatus
from tasklib.service.pages import Gap, TaskPages
from tasklib.service.statistics import Statistics, takes_a_while

OLDEST_SECONDS: Final = 4.5
"""Nothing older than this is shown."""
NEW_SECONDS: Final = 0.3
"""Nothing older than this is shown as live, provided that reading takes at most QUICK_SECONDS."""
QUICK_SECONDS: Final = 0.15
PAUSE_SECONDS: Final = 1.5
INTEREST_SECONDS: Final = 600.0
"""Reading continues for this long after the last request, so that the next one need not wait."""

STANDINGS_SECONDS: Final = 30.0
LONGEST_PAGE: Final = 101
MANY_NAMES: Final = 1000
MANY_IDS: Final = 1000

P = ParamSpec("P")
T = TypeVar("T")
Groups = tuple[Sequence[ErrorGroup], Mapping[str, list[int]]]
"""Groups of errors, and how often each happened in each of the last hours."""


def noted(task: asyncio.Task[Any]) -> None:
    """Retrieve the error of a shared reading, which asyncio would log if every request that waited for it is gone."""
    if not task.cancelled():
        task.exception()


class CachedValue(Generic[T]):
    """One value, read for every request while that is cheap, else never more than five seconds old."""

    def __init__(
        self,
        timing: Timing,
        read: Callable[[], Awaitable[T]],
        *,
        is_costly: Callable[[T], bool],
        prepare: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._timing = timing
        self._read = read
        self._is_costly = is_costly
        self._prepare = prepare
        self._read_at = self._asked_at = self._forgotten_at = -1e9
        self._took = 0.0
        self._value: T | None = None
        self._costly = False
        self._reading: asyncio.Task[T] | None = None
        self._keeping: asyncio.Task[None] | None = None

    def lasts_seconds(self, *, live: bool) -> float:
        """How old the value that is given may be."""
        if not self._costly:
            return 0.0
        return NEW_SECONDS if live and self._took <= QUICK_SECONDS else OLDEST_SECONDS

    async def get(self, *, live: bool = False) -> T:
        """The value; with `live` a newer one, where reading is quick."""
        self._asked_at = self._timing.monotonic()
        if self._costly and (self._keeping is None or self._keeping.done()):
            self._keeping = asyncio.create_task(self._keep())
        is_young = self._asked_at - self._read_at < self.lasts_seconds(live=live)
        if self._value is not None and is_young and self._read_at >= self._forgotten_at:
            return self._value
        return await self._renew()

    def forget(self) -> None:
        """Read again for the next request; a reading that is under way does not count."""
        self._forgotten_at, self._reading = self._timing.monotonic(), None

    async def _renew(self) -> T:
        """Read now; requests that come meanwhile share the reading."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._fill())
            self._reading.add_done_callback(noted)
        return await asyncio.shield(self._reading)

    async def _fill(self) -> T:
        began = self._timing.monotonic()
        value = await self._read()
        # As old as its beginning: what happened since is not in it.
        self._value, self._read_at, self._costly = value, began, self._is_costly(value)
        self._took = self._timing.monotonic() - began
        return value

    async def _keep(self) -> None:
        while self._costly and self._timing.monotonic() - self._asked_at < INTEREST_SECONDS:
            await self._timing.sleep(PAUSE_SECONDS)
            try:
                if self._prepare is not None:
                    await self._prepare()
                await self._renew()
            except TaskLibError:
                continue  # the database is unavailable; requests report it


class StatsCache:
    """The counts of a queue, exact and at most five seconds old; live ones are newer where counting is quick."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics
        self.are_many = True
        """Whether work for each name takes too long for the event loop; assumed until the names were counted."""
        self._stats = CachedValue(
            statistics.timing,
            self._count,
            is_costly=lambda stats: takes_a_while(stats.total),
            prepare=self._keep,
        )

    async def stats(self, *, live: bool = False) -> QueueStats:
        """How many tasks are in each state; `live` for those who watch the counts themselves."""
        return await self._stats.get(live=live)

    @property
    def live_max_age_seconds(self) -> int:
        """How old live ones may be."""
        return math.ceil(self._stats.lasts_seconds(live=True))

    async def _count(self) -> QueueStats:
        queue = self._statistics.queue
        stats = await self.read(queue.stats, queue.astats)
        self.are_many = len(stats.by_name) > MANY_NAMES
        return stats

    async def read(
        self, blocking: Callable[P, T], awaiting: Callable[P, Awaitable[T]], *of: P.args, **by: P.kwargs
    ) -> T:
        """Run work for each name in its awaiting form, or in its blocking form in a thread if there are many names."""
        return await (asyncio.to_thread(blocking, *of, **by) if self.are_many else awaiting(*of, **by))

    async def beside(self, work: Callable[[], T]) -> T:
        """Do work for each name, in a thread if there are many names."""
        return await asyncio.to_thread(work) if self.are_many else work()

    async def _keep(self) -> None:
        await self._statistics.akeep(fold_every=timedelta(seconds=1))


class GapCache:
    """Long ranges of the queue without a task in certain states: where a million wait, no completed one is."""

    def __init__(self, pages: TaskPages) -> None:
        self._pages = pages
        self._timing = pages.timing
        self._gaps: dict[tuple[str, ...], CachedValue[list[Gap]]] = {}
        self._without: dict[tuple[str, ...], float] = {}

    async def gap_for(self, which: TaskFilter) -> Gap | None:
        """The range that a list of these tasks may skip; at most five seconds old."""
        if not which.states or self._pages.is_indexed(which):
            return None
        states = tuple(sorted(set(which.states)))
        if self._timing.monotonic() < self._without.get(states, 0):
            return None
        if states not in self._gaps:  # never many: what can be asked for are sets of eight states
            self._gaps[states] = CachedValue(self._timing, lambda: self._look(states), is_costly=bool)
        found = await self._gaps[states].get()
        if not found:
            self._without[states] = self._timing.monotonic() + OLDEST_SECONDS
        return found[0] if found else None

    async def _look(self, states: tuple[str, ...]) -> list[Gap]:
        """The gap, if there is one: a value that is None counts as not read yet."""
        gap = await self._pages.alongest_gap(states, limit=LONGEST_PAGE)
        return [] if gap is None else [gap]


class IdCache:
    """The tasks whose ids a search text gives: pages ask twice a second, and no index finds the end of an id."""

    def __init__(self, pages: TaskPages) -> None:
        self._pages = pages
        self._timing = pages.timing
        self._found: OrderedDict[str, tuple[float, tuple[UUID, ...]]] = OrderedDict()

    async def read(self, which: TaskFilter) -> TaskFilter:
        """The filter, by ids where its search is the id of a task, whole or its end."""
        text = which.search
        if text is None or which.ids is not None:
            return which
        read_at, ids = self._found.get(text, (-1e9, ()))
        if not ids and self._timing.monotonic() - read_at > OLDEST_SECONDS:
            ids = await self._pages.afind_ids(text)
            self._found[text] = self._timing.monotonic(), ids
            if len(self._found) > MANY_IDS:
                self._found.popitem(last=False)
        return replace(which, search=None, ids=ids) if ids else which


class ObjectiveCache:
    """How objectives stand: over a day it changes slowly, and reading it takes a statement for each."""

    def __init__(self, objectives: Objectives) -> None:
        self._objectives = objectives
        self._timing = objectives.timing
        self._read_at = -1e9
        self._statuses: tuple[ObjectiveStatus, ...] = ()

    async def get(self) -> tuple[ObjectiveStatus, ...]:
        """The statuses over the last day, at most half a minute old."""
        if self._timing.monotonic() - self._read_at > STANDINGS_SECONDS:
            self._statuses = await self._objectives.astatuses()
            self._read_at = self._timing.monotonic()
        return self._statuses

    def forget(self) -> None:
        """Read again for the next request, because one was set."""
        self._read_at = -1e9


class ErrorCache:
    """Groups of tasks that failed for good; at most five seconds old if there are many."""

    def __init__(self, groups: ErrorGroups) -> None:
        self._groups = groups
        self._seen = CachedValue(
            groups.timing,
            self._look,
            is_costly=lambda seen: takes_a_while(sum(each.count for each in seen[0])),
        )

    async def get(self, name: str | None, limit: int) -> Groups:
        """The latest groups, of one type or of all, and how often each happened in each of the last hours."""
        groups, hours = await self._seen.get()
        if name is not None and len(groups) == MOST_GROUPS:
            return await self._groups.queue.aerrors(name, limit=limit), hours
        return [each for each in groups if name in (None, each.name)][:limit], hours

    def forget(self) -> None:
        """Read again for the next request, because some were retried."""
        self._seen.forget()

    async def _look(self) -> Groups:
        return await self._groups.queue.aerrors(limit=MOST_GROUPS), await self._groups.aby_hour()
