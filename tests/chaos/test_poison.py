"""Tasks that kill the process they run in, among good ones: the guilty end buried, and nobody else does."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest

from tests.chaos.conftest import StartFleet
from tests.fixtures.waiting import eventually


@dataclass(frozen=True)
class Size:
    good: int
    guilty: int


SIZES = [
    pytest.param(Size(good=40, guilty=1), id="short"),
    pytest.param(Size(good=2_000, guilty=20), id="long", marks=[pytest.mark.chaos, pytest.mark.timeout(3600)]),
]


THREADS = (["quick", "nap", "work"], ["exit_worker", "kill_worker"])
PROCESSES = (["quick", "nap", "apart"], ["exit_apart", "kill_apart"])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "good, guilty_names",
    [pytest.param(*THREADS, id="threads"), pytest.param(*PROCESSES, id="processes", marks=pytest.mark.chaos)],
)
@pytest.mark.backends("postgres-newest")
def test_tasks_that_kill_their_process_are_buried_and_no_other(
    database_url: str, start_fleet: StartFleet, size: Size, good: list[str], guilty_names: list[str]
):
    fleet, queue = start_fleet(database_url)
    chance = random.Random(size.guilty)
    chosen = [(name, {} if name == "quick" else {"seconds": 0.02}) for name in chance.choices(good, k=size.good)]
    for name in chance.choices(guilty_names, k=size.guilty):
        chosen.insert(chance.randrange(len(chosen)), (name, {}))
    # As many retries as @task gives by default.
    ids = queue.submit_new([queue.new_by_name(name, payload, max_attempts=4) for name, payload in chosen])
    guilty = {i for i, (name, _) in zip(ids, chosen, strict=True) if name in guilty_names}

    fleet.start("--concurrency", "10", "--prefetch", "20", processes=2)
    eventually(lambda: queue.count(state=["pending", "running", "retrying"]) == 0, 3000)

    tasks = {task.id: task for page in range(0, len(ids), 500) for task in queue.list(limit=500, offset=page)}
    assert {i for i, task in tasks.items() if task.state == "buried"} == guilty
    assert Counter(task.state.value for task in tasks.values()) == {"buried": size.guilty, "completed": size.good}
    # A suspect runs in a child process of its own, so only the first attempt takes a worker down.
    assert {"WorkerLost" in tasks[i].error or "ProcessDied" in tasks[i].error for i in guilty} == {True}
    assert {tasks[i].attempts for i in guilty} == {4}
    # One whose end could not be recorded, because another one killed the worker at that moment, has an attempt more.
    assert sum(len(fleet.ledger.starts_of(i)) for i in guilty) <= 4 * size.guilty + 2
    fleet.stop()


@pytest.mark.backends("postgres-newest")
def test_one_that_kills_the_worker_from_its_child_process_is_buried_too(database_url: str, start_fleet: StartFleet):
    fleet, queue = start_fleet(database_url)
    guilty = queue.enqueue("kill_parent", {}, max_attempts=2)

    fleet.start("--concurrency", "2", processes=1)
    eventually(lambda: queue.count(state=["pending", "running", "retrying"]) == 0, 100)

    task = queue.get(guilty)
    assert task is not None
    assert (task.state.value, task.attempts) == ("buried", 2)
    assert len(fleet.ledger.starts_of(guilty)) == 2
    fleet.stop()


def test_one_that_ends_everything_on_the_event_loop_fails_and_ends_no_worker(sqlite_url: str, start_fleet: StartFleet):
    fleet, queue = start_fleet(sqlite_url, worker_timeout_seconds=30)
    harmful = [queue.enqueue(name, {}, max_attempts=1) for name in ("cancel_everything", "stop_the_loop") * 3]
    good = [queue.enqueue("quick", {}) for _ in range(20)]

    service = fleet.start("--concurrency", "4")
    before = service.workers()
    eventually(lambda: queue.count(state=["pending", "running", "retrying"]) == 0, 100)

    assert [(queue.get(i).state, queue.get(i).attempts) for i in harmful] == [("failed", 1)] * 6
    assert {len(fleet.ledger.starts_of(i)) for i in harmful} == {1}
    assert {(queue.get(i).state, queue.get(i).attempts) for i in good} == {("completed", 1)}
    assert service.workers() == before
    fleet.stop()
