"""Workers start, pause and die at random while schedules tick: each tick makes exactly one task."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import psutil
import pytest

from tasklib import TaskQueue
from tests.chaos.conftest import StartFleet
from tests.chaos.fleet import Fleet
from tests.chaos.test_kills import kill_one
from tests.fixtures.waiting import eventually

EVERY = {"fast": 0.2, "slow": 0.7}


@dataclass(frozen=True)
class Size:
    services: int
    rounds: int


SIZES = [
    pytest.param(Size(services=2, rounds=2), id="short"),
    pytest.param(Size(services=8, rounds=100), id="long", marks=[pytest.mark.chaos, pytest.mark.timeout(3600)]),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_each_tick_makes_exactly_one_task_while_workers_come_and_go(
    database_url: str, start_fleet: StartFleet, size: Size
) -> None:
    fleet, queue = start_fleet(database_url)
    for name, every in EVERY.items():
        queue.add_schedule(name, task="quick", every=every, misfire="all")
    chance = random.Random(size.rounds)
    paused: psutil.Process | None = None
    # A process that is stopped while it writes to a SQLite file stops every other writer too.
    can_pause = database_url.startswith("postgresql")

    for number in range(size.rounds):
        keep(fleet, size.services)
        eventually(lambda number=number: made(queue) >= 5 * (number + 1), 120)
        if paused is None and can_pause:
            paused = chance.choice(eventually(lambda: fleet.processes("worker")))
            with suppress(psutil.NoSuchProcess):
                paused.suspend()
        else:
            resume(paused)
            paused = None
            kill_one(fleet, chance)
    resume(paused)
    keep(fleet, size.services)
    last = {schedule.name: schedule.last_run_at for schedule in queue.schedules()}
    eventually(lambda: all(s.last_run_at != last[s.name] for s in queue.schedules()))
    fleet.stop()

    for schedule in queue.schedules():
        ticks = sorted(ticks_of(queue, schedule.name))
        assert schedule.last_run_at == ticks[-1]
        step = timedelta(seconds=EVERY[schedule.name])
        assert ticks == [ticks[0] + n * step for n in range(len(ticks))]


def keep(fleet: Fleet, services: int) -> None:
    """Start a service for each that is gone."""
    alive = sum(service.process.poll() is None for service in fleet.services)
    for _ in range(services - alive):
        fleet.start("--concurrency", "8", processes=1, wait=False)


def resume(process: psutil.Process | None) -> None:
    if process is not None:
        with suppress(psutil.NoSuchProcess):
            process.resume()


def made(queue: TaskQueue) -> int:
    return queue.count(name="quick")


def ticks_of(queue: TaskQueue, schedule: str) -> list[datetime]:
    tasks = queue.list(name="quick", limit=10_000)
    return [datetime.fromisoformat(task.headers["tick"]) for task in tasks if task.headers["schedule"] == schedule]
