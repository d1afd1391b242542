"""Attempts by lane, read in bounded steps from the newest task back: no index holds when a task ran."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from tasklib.core.insights.lanes import LaneAttempt, LaneSum
from tasklib.core.queue_info import TaskFilter
from tasklib.storage.operations.reading.block_index import Gap, find_gaps, skip_gaps
from tasklib.storage.rows import required_moment, uuid
from tasklib.storage.statement import Operation, Row, Statement

By = Literal["worker", "key"]
STRIDE: Final = 50_000
"""Positions looked through by one statement."""
REACH: Final = 1_500_000
"""Positions looked through in all."""
EMPTY: Final = 2
"""After so many steps without an attempt, of tasks made before the time that is asked for, it ends."""


@dataclass(frozen=True, slots=True)
class Period:
    """Which attempts: those that ran between two moments (seconds since 1970), by what, and of which name."""

    since: float
    until: float
    clock: float
    by: By
    name: str | None = None


@dataclass(slots=True)
class Reading:
    """How far attempts were read."""

    attempts: list[LaneAttempt]
    sums: list[LaneSum]
    made_after: datetime | None = None
    """Tasks made before were not looked at; None if all were."""


def list_attempts(period: Period, limit: int) -> Operation[Reading | None]:
    """The attempts one by one; None if there are more than `limit`."""
    reading = Reading([], [])
    path = yield from _path(period)
    while path.more:
        asked = {**_asked(period, path), "limit": limit + 1 - len(reading.attempts)}
        rows = yield Statement("list_attempts", asked)
        reading.attempts += map(_attempt, rows)
        if len(reading.attempts) > limit:
            return None
        yield from path.advance(bool(rows))
    reading.made_after = path.made_after
    return reading


def sum_attempts(period: Period, step: float) -> Operation[Reading]:
    """The attempts added up by lane, name and step."""
    reading = Reading([], [])
    path = yield from _path(period)
    while path.more:
        rows = yield Statement("sum_attempts", {**_asked(period, path), "step": step})
        reading.sums += map(_sum, rows)
        yield from path.advance(bool(rows))
    reading.made_after = path.made_after
    return reading


class _Path:
    """From the newest task back, until the beginning, or until what is read can hold nothing more."""

    def __init__(self, period: Period, first: int, last: int, gaps: list[Gap]) -> None:
        self._since, self._first, self._gaps = period.since, first, gaps
        self._looked = self._empty = 0
        self.position, self.more = last + 1, True
        self.made_after: datetime | None = None
        self._move_to(self.position)

    @property
    def floor(self) -> int:
        """Where the next step ends."""
        return max(self._first, self.position - STRIDE)

    def advance(self, found: bool) -> Operation[None]:
        """Move one step down, and decide whether there is more to read."""
        self._looked += self.position - self.floor
        self._empty = 0 if found else self._empty + 1
        self._move_to(self.floor)
        if not self.more or (self._looked < REACH and self._empty < EMPTY):
            return
        rows = yield Statement("date_position", {"before": self.position})
        if not rows:
            self.more = False
            return
        made = required_moment(rows[0]["created_at"])
        if self._looked >= REACH or made < datetime.fromtimestamp(self._since, UTC):
            self.more, self.made_after = False, made

    def _move_to(self, position: int) -> None:
        self.position = skip_gaps(position, self._gaps)
        self.more = self.position > self._first


def _path(period: Period) -> Operation[_Path]:
    span = (yield Statement("measure_span"))[0]
    if span["first"] is None:
        return _Path(period, 0, -1, [])
    # What was made after the time has not run in it.
    which = TaskFilter(name=period.name, created_before=datetime.fromtimestamp(period.until, UTC))
    gaps = yield from find_gaps(which, span["last"] + 1, span["first"], span["counted"])
    return _Path(period, span["first"], span["last"], gaps)


def _asked(period: Period, path: _Path) -> dict[str, Any]:
    return {
        "before": path.position,
        "floor": path.floor,
        "since": period.since,
        "until": period.until,
        "clock": period.clock,
        "by": period.by,
        "name": period.name,
    }


def _attempt(row: Row) -> LaneAttempt:
    return LaneAttempt(
        uuid(row["id"]), row["name"], row["lane"], row["outcome"], float(row["began"]), float(row["ended"])
    )


def _sum(row: Row) -> LaneSum:
    return LaneSum(
        lane=row["lane"],
        name=row["name"],
        first=int(row["first"]),
        last=int(row["last"]),
        count=int(row["count"]),
        began=float(row["began"]),
        ended=float(row["ended"]),
        failed=int(row["failed"]),
        lost=int(row["lost"]),
    )
