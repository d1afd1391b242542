"""Workers are killed while tasks run within limits of keys and names: none is exceeded, and none is forgotten."""

from __future__ import annotations

import random
from collections.abc import Sequence
from uuid import UUID

import pytest

from tasklib import TaskQueue
from tests.chaos.conftest import StartFleet
from tests.chaos.fleet import Fleet
from tests.chaos.history import most_at_once
from tests.chaos.test_kills import has_come, kill_one
from tests.fixtures.waiting import eventually

SIZES = [
    pytest.param(80, 2, id="short"),
    pytest.param(6_000, 40, id="long", marks=[pytest.mark.chaos, pytest.mark.timeout(1800)]),
]
KEYS, LIMIT = 6, 2


@pytest.mark.parametrize("tasks, kills", SIZES)
@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_killed_workers_exceed_no_key_and_forget_none(
    database_url: str, start_fleet: StartFleet, tasks: int, kills: int
):
    fleet, queue = start_fleet(database_url)
    queue.set_key_limit(LIMIT)
    keys = run_and_kill(fleet, queue, [f"key-{number % KEYS}" for number in range(tasks)], kills)
    assert max(most_at_once(fleet.ledger, keys).values()) <= LIMIT


@pytest.mark.parametrize("tasks, kills", SIZES[1:])
@pytest.mark.backends("postgres-newest")
def test_killed_workers_exceed_no_limit_of_a_name(database_url: str, start_fleet: StartFleet, tasks: int, kills: int):
    fleet, queue = start_fleet(database_url)
    queue.set_concurrency_limit(2 * LIMIT, "nap")
    names = run_and_kill(fleet, queue, [None] * tasks, kills)
    assert most_at_once(fleet.ledger, names)[None] <= 2 * LIMIT


def run_and_kill(fleet: Fleet, queue: TaskQueue, keys: Sequence[str | None], kills: int) -> dict[UUID, str | None]:
    """Run a short task of each key, killing workers all the while; returns which task had which key."""
    for _ in range(2):
        fleet.start("--concurrency", "8", "--grace", "10", processes=2)
    new = [queue.new_by_name("nap", {"seconds": 0.02}, max_attempts=9, concurrency_key=key) for key in keys]
    ids = queue.submit_new(new)
    chance = random.Random(len(keys))
    for number in range(1, kills + 1):
        eventually(lambda number=number: has_come(fleet, 2 * len(keys) * number / (kills + 1)), 120)
        kill_one(fleet, chance, {"worker": 1})
    eventually(lambda: has_come(fleet, 0) and queue.count(state="completed") == len(keys), 600)
    return dict(zip(ids, keys, strict=True))
