"""Statistics for charts and counts: added by workers, merged by one worker at a time, read by front ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal
from uuid import UUID

from tasklib.core.codec import dumps
from tasklib.core.insights.histogram import Histogram, mean, merged, percentile
from tasklib.core.queue_info import QueueStats
from tasklib.core.task import TaskState
from tasklib.storage.operations.clock import read_clock
from tasklib.storage.operations.reading import lists
from tasklib.storage.operations.reading.block_index import BLOCK_SIZE, MOST_NAMES
from tasklib.storage.rows import json_value, moment, required_moment, uuid
from tasklib.storage.statement import BEGIN, COMMIT, Operation, Row, Statement

FOLD_ROWS: Final = 500_000
"""Rows added to the totals in one transaction."""
FOLD_EVERY: Final = timedelta(seconds=4)
KEEP_EVERY: Final = timedelta(seconds=55)
MINUTE, HOUR, DAY = 60, 3600, 86_400
RETENTION_SECONDS: Final = 30 * DAY
"""How long statistics are kept: by minute for a day, then by hour."""


@dataclass(frozen=True, slots=True)
class Done:
    """How often tasks of a name ended in one way since the last report, and how long they waited and ran."""

    name: str
    outcome: str
    count: int
    waits: Mapping[int, int]
    runs: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Durations:
    """Percentiles of durations in seconds; None where there were none."""

    p50: float | None
    p95: float | None
    p99: float | None
    mean: float | None = None

    @classmethod
    def of(cls, histogram: Histogram) -> Durations:
        """The percentiles and the mean of a histogram."""
        p50, p95, p99 = (percentile(histogram, part) for part in (0.5, 0.95, 0.99))
        return cls(p50, p95, p99, mean(histogram))


@dataclass(frozen=True, slots=True)
class Work:
    """What was done in one step of time, of one name or of all."""

    at: int
    name: str
    outcomes: Mapping[str, int]
    wait: Durations
    run: Durations


@dataclass(frozen=True, slots=True)
class Depth:
    """How many tasks waited and ran at the deepest moment of one step of time."""

    at: int
    due: int
    delayed: int
    retrying: int
    running: int


def add_metrics(done: Iterable[Done]) -> Operation[None]:
    """Add what was done since the last time, to the minute that it is now."""
    batch = [
        {"name": d.name, "outcome": d.outcome, "count": d.count, "waits": _keys(d.waits), "runs": _keys(d.runs)}
        for d in done
    ]
    if batch:
        yield Statement("add_metrics", {"batch": dumps(batch)})


def read_work(
    *, since: int, until: int, step: int, name: str | None = None, by_name: bool = False
) -> Operation[list[Work]]:
    """What was done between two moments (seconds since 1970), by step, and by name if that is asked for."""
    rows = yield Statement(
        "read_metrics", {"since": since, "until": until, "step": step, "name": name, "by_name": by_name}
    )
    groups: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["at"], row["name"]), []).append(row)
    return [_work(at, named, group) for (at, named), group in groups.items()]


def read_latency(
    *, since: int, until: int, step: int, kind: Literal["waits", "runs"], name: str | None = None
) -> Operation[dict[int, Histogram]]:
    """How long tasks waited or ran between two moments (seconds since 1970), as a histogram for each step."""
    asked = {"since": since, "until": until, "step": step, "name": name, "by_name": False}
    steps: dict[int, list[Mapping[str, int] | None]] = {}
    for row in (yield Statement("read_metrics", asked)):
        steps.setdefault(row["at"], []).append(json_value(row[kind]))
    return {at: merged(stored) for at, stored in steps.items()}


def read_depths(*, since: int, until: int, step: int, name: str | None = None) -> Operation[list[Depth]]:
    """How deep the queue was between two moments, by step."""
    rows = yield Statement("read_depths", {"since": since, "until": until, "step": step, "name": name})
    return [Depth(**{key: row[key] for key in Depth.__slots__}) for row in rows]


def count_tasks_by_state() -> Operation[QueueStats]:
    """How many tasks are in each state, exactly; a large table is counted without reading the finished ones."""
    if (yield from lists.is_small()):
        return (yield from lists.count_by_state())
    return _stats((yield Statement("count_quickly")))


@dataclass(frozen=True, slots=True)
class Due:
    """What waits and is due, and what runs, of one name."""

    name: str
    due: int
    running: int
    oldest_seconds: float | None
    """For how long the first has been due."""


def count_due() -> Operation[list[Due]]:
    """What is due now, retries included, and what runs, by name; without reading what is finished or due later."""
    return [
        Due(row["name"], int(row["due"]), int(row["running"]), None if row["oldest"] is None else float(row["oldest"]))
        for row in (yield Statement("count_due"))
    ]


def keep_statistics(*, fold_every: timedelta = FOLD_EVERY) -> Operation[bool]:
    """Merge statistics once a minute for all workers together, and update the totals every few seconds.

    Returns False if there was nothing to do, or another worker does it.
    """
    rows = yield Statement("read_statistics_turn")
    if not rows:
        return False
    last = rows[0]
    clock = required_moment(last["now"])
    may_fold, may_keep = _is_due(last["counted_at"], clock, fold_every), _is_due(last["merged_at"], clock, KEEP_EVERY)
    if not may_keep and not (may_fold and last["behind"]):
        return False
    yield BEGIN
    if not (yield Statement("lock_statistics")):
        return False
    behind = yield from _fold()
    if may_keep:
        yield Statement("keep_statistics")
        yield from _tidy(int(clock.timestamp()))
        yield from _note_depth()
    while behind > FOLD_ROWS:
        yield COMMIT
        yield BEGIN
        if not (yield Statement("lock_statistics")):
            return False
        before, behind = behind, (yield from _fold())
        if behind >= before:
            break  # waits for a transaction to end
    return True


def read_time() -> Operation[int]:
    """What time it is for the database, in seconds since 1970."""
    return int((yield from read_clock()).timestamp())


def _is_due(last: Any, clock: datetime, every: timedelta) -> bool:
    before = moment(last)
    # A time in the future comes from a clock that was set back since.
    return before is None or not timedelta(0) <= clock - before < every


def _fold() -> Operation[int]:
    asked = {"step": FOLD_ROWS, "block_size": BLOCK_SIZE, "most_names": MOST_NAMES}
    return int((yield Statement("fold_totals", asked))[0]["behind"])


def _tidy(clock: int) -> Operation[None]:
    hours = (clock - DAY) // HOUR * HOUR
    yield Statement("merge_metrics", {"minutes_before": clock // MINUTE * MINUTE, "hours_before": hours})
    yield Statement("thin_depths", {"hours_before": hours})
    yield Statement("forget_numbers", {"oldest": clock - RETENTION_SECONDS})
    yield Statement("forget_blocks", {"block_size": BLOCK_SIZE})


def _note_depth() -> Operation[None]:
    stats = yield from count_tasks_by_state()
    batch = []
    for name, counts in stats.by_name.items():
        delayed, retrying = counts.get("delayed", 0), counts.get("retrying", 0)
        due = counts.get("pending", 0) - delayed - counts.get("waiting", 0)
        running = counts.get("running", 0)
        if due or delayed or retrying or running:
            batch.append({"name": name, "due": due, "delayed": delayed, "retrying": retrying, "running": running})
    # One row even if there is nothing: an empty queue is not the same as no measurement.
    batch = batch or [{"name": "", "due": 0, "delayed": 0, "retrying": 0, "running": 0}]
    yield Statement("add_depths", {"batch": dumps(batch)})


def _work(at: int, name: str, rows: Sequence[Row]) -> Work:
    waits = merged(json_value(row["waits"]) for row in rows)
    runs = merged(json_value(row["runs"]) for row in rows)
    outcomes = {str(row["outcome"]): int(row["count"]) for row in rows}
    return Work(at, name, outcomes, Durations.of(waits), Durations.of(runs))


def _keys(histogram: Mapping[int, int]) -> dict[str, int]:
    return {str(bucket): count for bucket, count in histogram.items()}


def _stats(rows: Sequence[Row]) -> QueueStats:
    by_name: dict[str, dict[str, int]] = {}
    kinds: dict[str, dict[str, dict[str, int]]] = {}
    for row in rows:
        kinds.setdefault(row["name"], {})[row["kind"]] = {key: int(row[key]) for key in _NUMBERS}
    for name, of_name in kinds.items():
        counts = _of_name(of_name)
        if counts:
            by_name[name] = counts
    totals = {key: sum(counts.get(key, 0) for counts in by_name.values()) for key in _KEYS}
    return QueueStats(**totals, by_name=by_name)


_NUMBERS = ("count", "later", "waiting")
_KEYS = (*(str(state) for state in TaskState), "delayed", "waiting", "retrying")


def _of_name(kinds: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """The counts of one name, from those of the indexes and the totals."""

    def get(kind: str, number: str = "count") -> int:
        return kinds[kind][number] if kind in kinds else 0

    retrying = get("failed", "waiting")
    counts = {
        # What is suspended without an end has no due time, and so is in neither of the indexes of what is due.
        "pending": get("waiting") - retrying + get("suspended") - get("suspended", "waiting"),
        "delayed": get("waiting", "later") - get("failed", "later") - get("suspended", "later"),
        "waiting": get("suspended"),
        "running": get("running"),
        "failed": get("failed"),
        "retrying": retrying,
        "cancelled": get("cancelled"),
        "buried": get("buried"),
    }
    elsewhere = sum(counts[state] for state in ("pending", "running", "failed", "cancelled", "buried"))
    counts["completed"] = get("total") - elsewhere
    return {key: count for key, count in counts.items() if count}


@dataclass(frozen=True, slots=True)
class Oldest:
    """The task, of a name or of all, that has been due the longest."""

    id: UUID
    name: str
    due_at: datetime
    seconds: float
    """For how long it has been due."""


def find_oldest_waiting() -> Operation[list[Oldest]]:
    """Of each name the task that has been due the longest, that one first; costs as much as there are names."""
    return [
        Oldest(uuid(row["id"]), row["name"], required_moment(row["due_at"]), max(0.0, row["seconds"]))
        for row in (yield Statement("find_oldest_waiting"))
    ]


def count_workflows() -> Operation[dict[str, dict[str, int]]]:
    """Workflows that wait, by what for; open questions, undelivered events, uncounted ends, groups being stopped."""
    counts: dict[str, dict[str, int]] = {"waiting": {}}
    for row in (yield Statement("count_workflows")):
        counts.setdefault(row["series"], {})[row["kind"]] = row["count"]
    return counts
