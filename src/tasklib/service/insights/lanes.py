"""Lanes: what ran where and when, by worker or by concurrency key, from recorded attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tasklib.core.insights.lanes import Lane, LaneAttempt, LaneSums, lanes_of
from tasklib.core.queue_info import EndedWorker, WorkerInfo
from tasklib.queue.sync_async import operation
from tasklib.service.base import ServicePart
from tasklib.storage.operations import statistics, workers
from tasklib.storage.operations.reading import lanes
from tasklib.storage.operations.reading.lanes import By, Period
from tasklib.storage.operations.worker_history import list_ended_workers
from tasklib.storage.statement import Operation

__all__ = ["By", "Lane", "LaneAttempt", "Lanes", "LanesShown", "Worker"]

MOST_ATTEMPTS: Final = 3000
"""More are added up by steps of time."""
MOST_LANES: Final = 100
STEPS: Final = 120
WEEK_SECONDS: Final = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Worker:
    """What is known of the worker of a lane."""

    release: str | None
    alive: bool
    lost_at: tuple[datetime, ...]
    """When instances of this name were lost."""


@dataclass(frozen=True, slots=True)
class LanesShown:
    """What ran in a stretch of time."""

    since: float
    until: float
    step: float | None
    """Seconds of the steps in which attempts are added up; None if each is there."""
    count: int
    lanes: Sequence[Lane]
    """The busiest lanes, at most MOST_LANES."""
    left_off: int
    """How many lanes are not there."""
    made_after: datetime | None
    """Tasks made before were not looked at; None if all were."""
    workers: dict[str, Worker]


class Lanes(ServicePart):
    """The lanes of one queue."""

    @operation
    def show(
        self, *, seconds: float, until: datetime | None = None, by: By = "worker", name: str | None = None
    ) -> Operation[LanesShown]:
        """What ran in so many seconds before a moment, which is now if left out.

        A few thousand attempts are there one by one; more are added up, however many there are.
        """
        clock = float((yield from statistics.read_time())) + 1
        end = clock if until is None else min(until.timestamp(), clock)
        period = Period(since=end - seconds, until=end, clock=clock, by=by, name=name)
        found = yield from lanes.list_attempts(period, MOST_ATTEMPTS)
        alive = (yield from self._alive()) if by == "worker" else {}
        slots = {worker_id: info.concurrency for worker_id, info in alive.items()}
        step = None
        if found is not None:
            shown, count, made_after = lanes_of(found.attempts, slots), len(found.attempts), found.made_after
        else:
            step = seconds / STEPS
            read = yield from lanes.sum_attempts(period, step)
            sums = LaneSums(step, STEPS)
            for each in read.sums:
                sums.add(each)
            shown, count, made_after = sums.lanes(), sums.count, read.made_after
        known = (yield from self._workers(period, shown, alive)) if by == "worker" else {}
        top = sorted(shown[:MOST_LANES], key=lambda lane: lane.name)
        return LanesShown(
            period.since, period.until, step, count, top, max(0, len(shown) - MOST_LANES), made_after, known
        )

    ashow = show.as_async

    def _alive(self) -> Operation[dict[str, WorkerInfo]]:
        return {each.worker_id: each for each in (yield from workers.list_workers()) if each.alive}

    def _workers(self, period: Period, shown: list[Lane], alive: dict[str, WorkerInfo]) -> Operation[dict[str, Worker]]:
        """What is known of the workers; those that are alive and ran nothing get a lane as well."""
        ended = yield from list_ended_workers(seconds=WEEK_SECONDS)
        lanes_by_name = {lane.name: lane for lane in shown}
        for worker_id, info in alive.items():
            lane = lanes_by_name.get(worker_id)
            if lane is not None:
                lane.slots = info.concurrency
            elif info.started_at.timestamp() < period.until and period.name is None:
                shown.append(Lane(worker_id, slots=info.concurrency))
        gone: dict[str, list[EndedWorker]] = {}
        for each in ended:
            gone.setdefault(each.worker_id, []).append(each)
        return {
            lane.name: Worker(
                release=alive[lane.name].release if lane.name in alive else _release(gone.get(lane.name, ())),
                alive=lane.name in alive,
                lost_at=tuple(_lost(gone.get(lane.name, ()), period)),
            )
            for lane in shown
        }


def _release(ended: Sequence[EndedWorker]) -> str | None:
    return ended[0].release if ended else None


def _lost(ended: Sequence[EndedWorker], period: Period) -> list[datetime]:
    since, until = (datetime.fromtimestamp(each, UTC) for each in (period.since, period.until))
    return [each.ended_at for each in ended if each.ending == "lost" and since <= each.ended_at <= until]
