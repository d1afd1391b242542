"""Scanning tasks from the newest back in bounded steps: what no index finds must not cost the whole table.

No index holds what a finish writes, so completed tasks are found by walking back in insertion order.  A walk that has
gone far enough stops and says where to continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tasklib.core.queue_info import TaskFilter
from tasklib.core.task import Task
from tasklib.storage.operations.reading.block_index import Gap, find_gaps, skip_gaps
from tasklib.storage.operations.reading.lists import (
    LISTED_WIDTH,
    WHOLE_WIDTH,
    filter_params,
    find_floor,
    is_covered,
    is_indexed,
    list_tasks,
)
from tasklib.storage.rows import task_start_from_row
from tasklib.storage.statement import Operation, Statement

WIDEST: Final = 250_000
"""Positions looked through by one statement."""
CHUNK: Final = 200
"""Tasks read at once where each is judged here."""
COVERED: Final = 60_000
"""Failures looked through for one page where the index decides whether they match."""
UNCOVERED: Final = 5_000
"""The same where each has to be read."""
WAITING: Final = frozenset({"pending", "delayed", "waiting"})

Keep = Callable[[Task], bool]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a walk goes, in positions."""

    stride: int
    """The first step, and the shortest gap worth remembering; later steps are longer while nothing is found."""
    reach: int
    """How far it goes once it has found something."""
    farthest: int
    """How far it goes to find anything at all."""
    passing: int
    """How far it goes to skip the matches of an offset."""


PAGE: Final = Bounds(40_000, reach=40_000, farthest=1_000_000, passing=120_000)
"""For a page of a list: some hundredths of a second, and up to a second where there would be nothing to show."""
NEAR: Final = Bounds(40_000, reach=40_000, farthest=40_000, passing=40_000)
"""For a page of tasks of which none existed when they were counted: only the newest can match."""
JUDGED: Final = Bounds(10_000, reach=10_000, farthest=10_000, passing=10_000)
"""For a page of tasks that are judged one by one: it takes longer, and reveals nothing about those refused."""
SURVEY: Final = Bounds(40_000, reach=5_000_000, farthest=5_000_000, passing=5_000_000)
"""To find the gaps."""
WHOLE: Final = Bounds(WIDEST, reach=1 << 62, farthest=1 << 62, passing=1 << 62)


@dataclass(frozen=True, slots=True)
class Start:
    """Where to look: below a position, after so many matches, and which range may be left out."""

    below: int | None = None
    offset: int = 0
    gap: Gap | None = None


NEWEST: Final = Start()


@dataclass(slots=True)
class Walk:
    """The tasks that a scan found, and where it stopped."""

    tasks: list[Task] = field(default_factory=list)
    to_skip: int = 0
    """How many more matches the offset skips."""
    stopped: int | None = None
    """Continue below this; None if there is nothing more."""
    gap: Gap | None = None
    """The longest range without a match, if it is worth remembering."""
    looked: float | None = None
    """The part of the table above the position where it stopped, 0 to 1; None if an index was read."""


def walk_tasks(
    which: TaskFilter, *, limit: int, start: Start = NEWEST, bounds: Bounds = PAGE, keep: Keep | None = None
) -> Operation[Walk]:
    """At most `limit` matching tasks, newest first; fewer if there are no more, or none within reach.

    With `keep`, what it refuses is no match, and nothing in the answer reveals that it was there.
    """
    params = filter_params(which) | {"width": _width(keep)}
    walk = Walk(to_skip=start.offset)
    if is_indexed(which):
        yield from _read_index(which, walk, limit, start, keep)
        return walk
    span = (yield Statement("measure_span"))[0]
    if span["first"] is None:
        return walk
    below = span["last"] + 1 if start.below is None else start.below
    known = (yield from find_gaps(which, below, span["first"], span["counted"])) + ([start.gap] if start.gap else [])
    path = _Path(span["first"], below, known, bounds.stride)
    while len(walk.tasks) < limit and path.position > path.first:
        if path.looked >= (bounds.reach if walk.tasks else bounds.passing if start.offset else bounds.farthest):
            walk.stopped = path.position
            walk.looked = (span["last"] + 1 - path.position) / (span["last"] + 1 - span["first"])
            break
        floor = path.floor()
        met = yield from _look(params, walk, limit, path.position, floor, keep)
        path.advance(floor, met)
        if not met and path.looked >= bounds.stride and which.states and set(which.states) <= WAITING:
            newest = (yield Statement("find_waiting", {"before": path.position}))[0]["seq"]
            path.position = path.first if newest is None else newest + 1
    # Where the matches are that an offset skipped is not known.
    walk.gap = None if start.offset else path.longest_gap()
    return walk


class _Path:
    """Where a walk is, and how it continues: in longer steps while it finds nothing, and over a gap in one."""

    def __init__(self, first: int, position: int, known: Sequence[Gap], stride: int) -> None:
        self.first, self.position, self.looked = first, skip_gaps(position, known), 0
        self._known, self._width, self._stride = known, stride, stride
        self._empty_since = position
        self._gaps: list[Gap] = []

    def floor(self) -> int:
        """Where the next step ends."""
        return max(self.first, self.position - self._width, *(g.top for g in self._known if g.top < self.position))

    def advance(self, floor: int, met: Sequence[int]) -> None:
        """Move down to `floor`; `met` are the positions of the matches on the way."""
        self.looked += self.position - floor
        if met:
            self._gaps.append(Gap(self._empty_since, met[0]))
            self._empty_since = met[-1]
        else:
            self._width = min(self._width * 4, WIDEST)
        self.position = skip_gaps(floor, self._known)

    def longest_gap(self) -> Gap | None:
        """The longest range without a match, if it is worth remembering."""
        gaps = [*self._gaps, Gap(self._empty_since, self.position - 1)]
        longest = max(gaps, key=lambda gap: gap.top - gap.bottom)
        return longest if longest.top - longest.bottom > self._stride else None


def _look(
    params: dict[str, Any], walk: Walk, limit: int, below: int, floor: int, keep: Keep | None
) -> Operation[list[int]]:
    """Add the matches between two positions to the walk; the positions of the first and last match met, if any."""
    here = {**params, "floor": floor}
    met: list[int] = []
    if keep is None and walk.to_skip:
        passed = (yield Statement("pass_tasks", {**here, "before": below, "limit": walk.to_skip}))[0]
        walk.to_skip -= passed["met"]
        if passed["met"]:
            below = passed["last"]
            met.append(below)
        if walk.to_skip:
            return met
    while len(walk.tasks) < limit:
        wanted = limit - len(walk.tasks) if keep is None else CHUNK
        rows = yield Statement("walk_tasks", {**here, "before": below, "limit": wanted})
        tasks = [task_start_from_row(row, params["width"]) for row in rows]
        kept = _judge(walk, tasks, limit, keep)
        met += [each.seq for each in kept]
        if len(tasks) < wanted:
            break
        below = tasks[-1].seq
    return met


def _read_index(which: TaskFilter, walk: Walk, limit: int, start: Start, keep: Keep | None) -> Operation[None]:
    """Add the matches that an index finds, among the newest that it holds."""
    # An offset without `keep` reveals nothing, so it may look as far as it must.
    every = which.name is None and which.fingerprint is None and "retrying" not in which.states and is_covered(which)
    if not every and (keep is not None or not start.offset):
        walk.stopped = yield from find_floor(which, start.below, COVERED if is_covered(which) else UNCOVERED)
    below, floor = start.below, walk.stopped
    if keep is None:
        found = yield from list_tasks(
            which, limit=limit, offset=start.offset, before=below, floor=floor, width=_width(keep)
        )
        walk.to_skip, walk.tasks = 0, found
        return
    while len(walk.tasks) < limit and (tasks := (yield from list_tasks(which, limit=CHUNK, before=below, floor=floor))):
        _judge(walk, tasks, limit, keep)
        below = tasks[-1].seq


def _width(keep: Keep | None) -> int:
    """`keep` has to see all of a task."""
    return LISTED_WIDTH if keep is None else WHOLE_WIDTH


def _judge(walk: Walk, tasks: Sequence[Task], limit: int, keep: Keep | None) -> list[Task]:
    """Add those to keep to the walk, after those to be passed over."""
    kept = [each for each in tasks if keep is None or keep(each)]
    passed = min(walk.to_skip, len(kept))
    walk.to_skip -= passed
    walk.tasks += kept[passed : passed + limit - len(walk.tasks)]
    return kept
