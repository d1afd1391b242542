"""Statistics: tasks by state, attempts by outcome, their durations, and queue depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from tasklib.core.insights.histogram import Histogram
from tasklib.core.insights.scale import OBJECTIVE_SECONDS, Fleet, Load, Scale, TypeScale, scale
from tasklib.core.limits import Pause
from tasklib.core.queue_info import EndedWorker, QueueStats
from tasklib.queue.sync_async import operation
from tasklib.service.base import ServicePart
from tasklib.storage.operations import statistics, workers
from tasklib.storage.operations.limits import pauses
from tasklib.storage.operations.reading import lists
from tasklib.storage.operations.statistics import Depth, Due, Durations, Oldest, Work
from tasklib.storage.operations.worker_history import list_ended_workers
from tasklib.storage.statement import Operation

__all__ = [
    "OBJECTIVE_SECONDS",
    "Depth",
    "Durations",
    "Oldest",
    "Overview",
    "Scale",
    "Series",
    "Statistics",
    "TypeInfo",
    "TypeScale",
    "Work",
    "takes_a_while",
]


@dataclass(frozen=True, slots=True)
class Overview:
    """The queue at a glance."""

    stats: QueueStats
    pauses: tuple[Pause, ...]
    workers_alive: int


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """One type: its tasks by status, and its workers."""

    name: str
    pending: int
    delayed: int
    waiting: int
    running: int
    completed: int
    failed: int
    retrying: int
    cancelled: int
    buried: int
    workers: int
    """Live workers that take tasks of the name; one that is stopping takes no more."""
    paused: bool


@dataclass(frozen=True, slots=True)
class Series:
    """Attempts and queue depth, in steps of equal length."""

    step: int
    points: tuple[tuple[int, Work | None, Depth | None], ...]
    """The start of each step in seconds since 1970; None where nothing was done, or nothing sampled."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Histograms of durations, in steps of equal length."""

    step: int
    points: tuple[tuple[int, Histogram], ...]
    """The start of each step in seconds since 1970."""


class Statistics(ServicePart):
    """The statistics of one queue."""

    @operation
    def overview(self, stats: QueueStats | None = None) -> Operation[Overview]:
        """Tasks by state, pauses, and how many workers are alive."""
        stats = stats or (yield from statistics.count_tasks_by_state())
        paused = yield from pauses.list_pauses()
        known = yield from workers.list_workers()
        return Overview(stats, tuple(paused), sum(worker.alive for worker in known))

    aoverview = overview.as_async

    @operation
    def types(self, stats: QueueStats | None = None) -> Operation[tuple[TypeInfo, ...]]:
        """Every type that a stored task has or that a worker defines, by name."""
        stats = stats or (yield from statistics.count_tasks_by_state())
        known = yield from workers.list_workers()
        found = yield from pauses.list_pauses()
        workers_of = Counter(name for worker in known for name in set(worker.names) if worker.takes(name))
        paused = {pause.name for pause in found}
        names = {*stats.by_name, *(name for worker in known for name in worker.names)}
        return tuple(_type_info(name, stats, workers_of[name], paused) for name in sorted(names))

    atypes = types.as_async

    @operation
    def series(
        self, *, seconds: int, step: int, name: str | None = None, until: datetime | None = None
    ) -> Operation[Series]:
        """Attempts and queue depth of the seconds before a moment, or the last, step by step, without gaps."""
        since, end = yield from _steps_before(until, seconds, step)
        done = yield from statistics.read_work(since=since, until=end, step=step, name=name)
        deep = yield from statistics.read_depths(since=since, until=end, step=step, name=name)
        work, depths = {each.at: each for each in done}, {each.at: each for each in deep}
        points = [(at, work.get(at), depths.get(at)) for at in range(since, end, step)]
        return Series(step, tuple(points))

    aseries = series.as_async

    @operation
    def latency(
        self,
        *,
        seconds: int,
        step: int,
        kind: Literal["waits", "runs"],
        name: str | None = None,
        until: datetime | None = None,
    ) -> Operation[Latency]:
        """How long tasks waited or ran in the seconds before a moment, or the last, as a histogram for each step."""
        since, end = yield from _steps_before(until, seconds, step)
        found = yield from statistics.read_latency(since=since, until=end, step=step, kind=kind, name=name)
        return Latency(step, tuple((at, found.get(at, Counter())) for at in range(since, end, step)))

    alatency = latency.as_async

    @operation
    def work_by_type(self, *, seconds: int, until: datetime | None = None) -> Operation[tuple[Work, ...]]:
        """Attempts of each type in the seconds before a moment, or the last, by name."""
        since, end = yield from _minutes_before(until, seconds)
        # One step for the whole time: every moment is below it.
        found = yield from statistics.read_work(since=since, until=end, step=_WHOLE, by_name=True)
        return tuple(sorted(found, key=lambda each: each.name))

    awork_by_type = work_by_type.as_async

    @operation
    def work(self, *, seconds: int, until: datetime | None = None) -> Operation[Work | None]:
        """Attempts of all types together in the seconds before a moment, or the last; None if there were none."""
        since, end = yield from _minutes_before(until, seconds)
        found = yield from statistics.read_work(since=since, until=end, step=_WHOLE)
        return found[0] if found else None

    awork = work.as_async

    @operation
    def scale(
        self,
        *,
        names: Collection[str] = (),
        objective_seconds: float = OBJECTIVE_SECONDS,
        slots_per_worker: int | None = None,
    ) -> Operation[Scale]:
        """What waits and can run, by type, and how many workers would run it within the objective.

        Without `names` it is every type that has something to do; without `slots_per_worker` a worker is taken to run
        as many at once as those that take tasks do, on average.
        """
        found = yield from statistics.count_due()
        known = [each for each in (yield from workers.list_workers()) if any(map(each.takes, each.names))]
        paused = {pause.name for pause in (yield from pauses.list_pauses())}
        limits = {limit.name: limit for limit in (yield from pauses.list_limits())}
        clock = yield from statistics.read_time()
        work = yield from statistics.read_work(since=clock - _MEASURED, until=clock + 60, step=_WHOLE, by_name=True)
        means = {each.name: each.run.mean for each in work}
        of_name = {each.name: each for each in found if not names or each.name in names}
        of_name |= {name: Due(name, 0, 0, None) for name in names if name not in of_name}
        able = {name: [worker for worker in known if worker.takes(name)] for name in of_name}
        there = {worker.instance: worker for each in able.values() for worker in each} if of_name else {}
        there = there or {worker.instance: worker for worker in known if not names}
        fleet = Fleet(
            workers_alive=len(there),
            slots_alive=sum(worker.concurrency for worker in there.values()),
            slots_per_worker=slots_per_worker or _usual(worker.concurrency for worker in there.values() or known),
            limits=limits,
        )
        loads = [
            Load(
                name=name,
                due=each.due,
                running=each.running,
                oldest_seconds=each.oldest_seconds,
                seconds_per_task=means.get(name),
                workers_alive=len(able[name]),
                slots_alive=sum(worker.concurrency for worker in able[name]),
                paused=None in paused or name in paused,
            )
            for name, each in sorted(of_name.items())
        ]
        return scale(loads, fleet, objective_seconds=objective_seconds)

    ascale = scale.as_async

    @operation
    def oldest_waiting(self) -> Operation[Oldest | None]:
        """The task that has been due the longest, paused and limited ones included; None if none is due."""
        found = yield from statistics.find_oldest_waiting()
        return found[0] if found else None

    aoldest_waiting = oldest_waiting.as_async

    @operation
    def ended_workers(self, *, seconds: float, limit: int = 1000) -> Operation[Sequence[EndedWorker]]:
        """Workers that ended in the last seconds, the latest first; a week is remembered."""
        return (yield from list_ended_workers(seconds=seconds, limit=limit))

    aended_workers = ended_workers.as_async

    @operation
    def oldest_by_type(self) -> Operation[dict[str, Oldest]]:
        """The same of each type that has a task which is due."""
        return {each.name: each for each in (yield from statistics.find_oldest_waiting())}

    aoldest_by_type = oldest_by_type.as_async

    @operation
    def workflows(self) -> Operation[dict[str, dict[str, int]]]:
        """How many workflows wait, by what for, and what workers have still to do about them."""
        return (yield from statistics.count_workflows())

    aworkflows = workflows.as_async

    @operation
    def keep(self, *, fold_every: timedelta = statistics.FOLD_EVERY) -> Operation[None]:
        """Fold counts and merge charts, so that they are quick to read; does nothing while another process does."""
        yield from statistics.keep_statistics(fold_every=fold_every)

    akeep = keep.as_async


def _steps_before(until: datetime | None, seconds: int, step: int) -> Operation[tuple[int, int]]:
    """From when to when the whole steps go that cover the seconds before a moment, or the last."""
    clock = yield from _end(until)
    end = (clock if until is None else clock - 1) // step * step + step
    return end - max(1, -(-seconds // step)) * step, end


def _minutes_before(until: datetime | None, seconds: int) -> Operation[tuple[int, int]]:
    """From when to when the minutes go that cover the seconds before a moment, or the last."""
    clock = yield from _end(until)
    return (clock - seconds) // 60 * 60, clock + 60 if until is None else clock


def _end(until: datetime | None) -> Operation[int]:
    """The moment, but not later than now, which it is if left out; in seconds since 1970."""
    clock = yield from statistics.read_time()
    return clock if until is None else min(int(until.timestamp()), clock)


def takes_a_while(count: int) -> bool:
    """Whether this many tasks are too many to be counted or grouped for each request."""
    return count > lists.FEW_ROWS


def _usual(concurrencies: Iterable[int]) -> int:
    """How many tasks a worker runs at once, on average; 1 if there is no worker."""
    found = list(concurrencies)
    return max(1, round(sum(found) / len(found))) if found else 1


def _type_info(name: str, stats: QueueStats, workers_alive: int, paused: Collection[str | None]) -> TypeInfo:
    counts = stats.by_name.get(name, {})
    return TypeInfo(
        name=name,
        pending=counts.get("pending", 0),
        delayed=counts.get("delayed", 0),
        waiting=counts.get("waiting", 0),
        running=counts.get("running", 0),
        completed=counts.get("completed", 0),
        failed=counts.get("failed", 0),
        retrying=counts.get("retrying", 0),
        cancelled=counts.get("cancelled", 0),
        buried=counts.get("buried", 0),
        workers=workers_alive,
        paused=None in paused or name in paused,
    )


_WHOLE: Final = 1 << 40
_MEASURED: Final = 3600
"""Of how many seconds durations are averaged."""
