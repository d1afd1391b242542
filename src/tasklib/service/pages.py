"""Pages of tasks for every front end: newest first, matched by what is shown, without reading a large table."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from tasklib.core.queue_info import QueueStats, TaskFilter
from tasklib.core.task import Task, TaskState
from tasklib.core.texts.short_id import readings
from tasklib.errors import ConfigurationError, TaskNotFound
from tasklib.queue import Id, require_id
from tasklib.queue.sync_async import operation
from tasklib.service.base import ServicePart
from tasklib.service.preview import matches_as_shown, preview, without_unknown_secrets
from tasklib.storage.operations import tasks
from tasklib.storage.operations.actions import STEP
from tasklib.storage.operations.reading import lists
from tasklib.storage.operations.reading.block_index import Gap
from tasklib.storage.operations.reading.scan import JUDGED, NEAR, NEWEST, PAGE, SURVEY, WHOLE, Keep, Start, walk_tasks
from tasklib.storage.statement import Operation

__all__ = ["Gap", "Listing", "Page", "Start", "TaskPages"]

SEARCHED_ID: Final = re.compile(r"[0-9a-f-]*(\.\.[0-9a-f-]*)?")
"""A text that may be an id: whole, its last digits, or both ends as the command line prints them."""
SHORTEST_ID: Final = 8
"""So many digits are shown of an id in lists."""
FEW_JUDGED: Final = 5000
"""Up to this many tasks, those that match by what is shown of them are counted one by one."""
FEW_FAILURES: Final = 200_000
"""Up to this many failures, those of one kind are counted in their index."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some tasks, newest first."""

    tasks: tuple[Task, ...]
    next: UUID | None
    """Where the next page begins, as `before`; None if this is the last one."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Some tasks, newest first, and how many there are in all."""

    tasks: tuple[Task, ...]
    total: int | None
    """None if it was not requested, or could only be counted row by row."""
    next: Start | None
    """Where the next page begins, as `start`; None if this is the last one."""
    looked: float | None = None
    """The part of the queue that was searched, from the newest task on, if the search has not reached its end."""


class TaskPages(ServicePart):
    """Reads the tasks of one queue."""

    @operation
    def page(
        self,
        which: TaskFilter,
        *,
        limit: int = 50,
        before: Id | None = None,
        on_progress: Callable[[float], None] | None = None,
    ) -> Operation[Page]:
        """A page of matching tasks; `before` is `next` of the previous page.

        It looks through the whole queue if it must, in bounded steps; after each, `on_progress` gets the part done.
        """
        start = Start(None if before is None else (yield from required(before)).seq)
        yield from self.queue.secret_places.learn()
        found: list[Task] = []
        while True:
            walk = yield from walk_tasks(which, limit=limit + 1 - len(found), start=start)
            found += walk.tasks
            if len(found) > limit or walk.stopped is None:
                break
            if on_progress is not None and walk.looked is not None:
                on_progress(walk.looked)
            start = Start(walk.stopped)
        shown = tuple(map(self._shown, found[:limit]))
        return Page(shown, shown[-1].id if shown and len(found) > limit else None)

    apage = page.as_async

    @operation
    def find_id(self, text: str) -> Operation[UUID]:
        """The id that a text gives in full or in a short form; TaskNotFound, or an error if several tasks fit."""
        with suppress(ValueError):
            return UUID(text)
        for reading in readings(text):
            found = yield from tasks.find_ids(reading)
            if len(found) > 1:
                several = ", ".join(map(str, found[:3])) + (" and more" if len(found) > 3 else "")
                raise ConfigurationError(f"several tasks have an id like {text!r}: {several}; give more characters")
            if found:
                return found[0]
        raise TaskNotFound(text)

    @operation
    def find_ids(self, text: str) -> Operation[tuple[UUID, ...]]:
        """The tasks whose id is this text, or ends with it, if it has at least the eight digits that lists show."""
        text = text.strip().lower()
        if len(text) < SHORTEST_ID or not SEARCHED_ID.fullmatch(text):
            return ()
        for reading in readings(text):
            found = yield from tasks.find_ids(reading)
            # Ids made within the same minute begin alike: a beginning that several have is no id.
            if found and (reading.end or len(found) == 1):
                return tuple(found)
        return ()

    afind_ids = find_ids.as_async

    @operation
    def listing(
        self,
        which: TaskFilter,
        *,
        limit: int,
        start: Start = NEWEST,
        stats: QueueStats | None = None,
        counted: bool = False,
    ) -> Operation[Listing]:
        """A page of tasks that match by what is shown of them; short if no more are within reach.

        `stats` are the counts of the queue: where they say that none match, the search is short.
        """
        yield from self.queue.secret_places.learn()
        judged = self.is_judged(which)
        known = None if stats is None else count_in(stats, which)
        bounds, keep = (JUDGED, self._keep(which)) if judged else (NEAR if known == 0 else PAGE, None)
        walk = yield from walk_tasks(which, limit=limit + 1, start=start, bounds=bounds, keep=keep)
        shown = tuple(map(self._shown, walk.tasks[:limit]))
        following = None if walk.stopped is None or known == 0 else Start(walk.stopped, walk.to_skip)
        if len(walk.tasks) > limit:
            following = Start(shown[-1].seq)
        total = (yield from self._count(which, stats)) if counted and known is None else known
        looked = walk.looked if len(walk.tasks) <= limit and following is not None else None
        return Listing(shown, total if counted else None, following, looked)

    alisting = listing.as_async

    @operation
    def longest_gap(self, states: Sequence[str], *, limit: int) -> Operation[Gap | None]:
        """The longest range of the newest tasks without one in these states, or None if it is short.

        Where a million wait there is no completed one, and a list can skip them.  `limit` is the longest page.
        """
        which = TaskFilter(states=tuple(states))
        return (yield from walk_tasks(which, limit=limit, bounds=SURVEY)).gap

    alongest_gap = longest_gap.as_async

    def is_indexed(self, which: TaskFilter) -> bool:
        """Whether the tasks are found by an index, without reading others."""
        return lists.is_indexed(which)

    def is_judged(self, which: TaskFilter) -> bool:
        """Whether the filter is about values that may be hidden, so that a task matches only by what is shown of it."""
        hidden = (which.search, which.arguments, which.tags, which.unique_key, which.concurrency_key)
        return any(each is not None for each in hidden)

    def each_shown(self, which: TaskFilter, act: Callable[[tuple[UUID, ...], int], Operation[int]]) -> Operation[int]:
        """Act on the tasks that match by what is shown, some at a time; `act` gets their ids and the sum so far."""
        yield from self.queue.secret_places.learn()
        total, start = 0, NEWEST
        while True:
            walk = yield from walk_tasks(which, limit=STEP, start=start, bounds=WHOLE, keep=self._keep(which))
            if walk.tasks:
                total += yield from act(tuple(each.id for each in walk.tasks), total)
            below = walk.tasks[-1].seq if len(walk.tasks) == STEP else walk.stopped
            if below is None:
                return total
            start = Start(below)

    def _shown(self, task: Task) -> Task:
        """The preview of a task, its secrets hidden before anything is cut."""
        return preview(self.redactor.task(without_unknown_secrets(task)))

    def _keep(self, which: TaskFilter) -> Keep:
        return lambda task: matches_as_shown(task, self.redactor.task(task), which)

    def _count(self, which: TaskFilter, stats: QueueStats | None) -> Operation[int | None]:
        """How many match; None if counting would take long."""
        rows = 0 if stats is None else stats.total
        if self.is_judged(which):
            if rows > FEW_JUDGED:
                return None
            return len((yield from walk_tasks(which, limit=rows + 1, bounds=WHOLE, keep=self._keep(which))).tasks)
        if rows <= lists.FEW_ROWS:
            return (yield from lists.count_tasks(which))
        if stats is not None and lists.is_covered(which) and stats.failed + stats.buried <= FEW_FAILURES:
            return (yield from lists.count_failures(which))
        return None


def required(task_id: Id) -> Operation[Task]:
    """The task of this id; TaskNotFound if there is none."""
    return (yield from tasks.require_task(require_id(task_id)))


def count_in(stats: QueueStats, which: TaskFilter) -> int | None:
    """How many tasks match by the counts of names and states; None if the filter has other criteria."""
    if replace(which, states=(), name=None) != TaskFilter():
        return None
    counts = _counts(stats) if which.name is None else stats.by_name.get(which.name, {})
    wanted = set(map(str, which.states)) or {str(state) for state in TaskState}
    wanted -= {
        part
        for part, whole in (("delayed", "pending"), ("waiting", "pending"), ("retrying", "failed"))
        if whole in wanted
    }
    return sum(counts.get(state, 0) for state in wanted)


def _counts(stats: QueueStats) -> Mapping[str, int]:
    return {key: getattr(stats, key) for key in (*TaskState, "delayed", "waiting", "retrying")}
