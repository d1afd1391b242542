"""Random processes are killed while tasks run: nothing is lost, nothing is completed twice, everything finishes."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import psutil
import pytest

from tests.chaos.conftest import StartFleet
from tests.chaos.fleet import Fleet, Kind
from tests.fixtures.waiting import eventually


@dataclass(frozen=True)
class Size:
    tasks: int
    kills: int


SIZES = [
    pytest.param(Size(tasks=120, kills=4), id="short"),
    pytest.param(Size(tasks=100_000, kills=200), id="long", marks=[pytest.mark.chaos, pytest.mark.timeout(7200)]),
]
SERVICES = 2
PROCESSES = 2
CHANCES: dict[Kind, int] = {"worker": 6, "supervisor": 2, "child": 2}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_killed_processes_lose_nothing_and_complete_nothing_twice(
    database_url: str, start_fleet: StartFleet, size: Size
):
    fleet, queue = start_fleet(database_url)
    for _ in range(SERVICES):
        fleet.start("--concurrency", "8", "--grace", "10", processes=PROCESSES)
    chance = random.Random(size.kills)
    producer = fleet.produce(queue, size.tasks)
    killed: Counter[Kind] = Counter()

    for number in range(1, size.kills + 1):
        # Spread over the work, whatever the machine's speed.
        share = size.tasks * number / (size.kills + 1)
        eventually(lambda share=share: has_come(fleet, share), 300)
        killed[kill_one(fleet, chance)] += 1
    eventually(lambda: has_come(fleet, size.tasks) and producer.is_done, 1800)
    eventually(lambda: has_come(fleet, 0) and queue.count(state=["pending", "running", "retrying"]) == 0, 600)

    assert queue.count(state="completed") == size.tasks, (queue.stats(), killed)
    assert fleet.history.doubtful == 0
    assert set(fleet.history.completions()) == set(producer.acknowledged)
    fleet.stop()
    assert queue.count(state="running") == 0


def kill_one(fleet: Fleet, chance: random.Random, chances: dict[Kind, int] | None = None) -> Kind:
    """Kill a random process of a random kind."""
    chances = chances or CHANCES
    while True:
        kind = chance.choices(list(chances), list(chances.values()))[0]
        victims = fleet.processes(kind) or fleet.processes("worker")
        try:
            victim = chance.choice(sorted(victims, key=lambda p: p.pid))
            kind = fleet.kind_of(victim)
            victim.kill()
            # A zombie until its parent has collected it, which may be nobody we know.
            eventually(lambda victim=victim: not victim.is_running() or victim.status() == psutil.STATUS_ZOMBIE)
        except (psutil.NoSuchProcess, IndexError):
            continue
        return kind


def has_come(fleet: Fleet, lines: float) -> bool:
    """Whether so much was run; meanwhile a service is started for each that is gone, as a service manager does.

    Not only for those killed: one whose first process was killed while it loaded its tasks takes it for broken.
    """
    alive = sum(service.process.poll() is None for service in fleet.services)
    for _ in range(SERVICES - alive):
        fleet.start("--concurrency", "8", "--grace", "10", processes=PROCESSES, wait=False)
    return fleet.ledger.count() >= lines
