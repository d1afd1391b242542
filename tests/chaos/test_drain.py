"""SIGTERM with many tasks running: what ends within the grace is done, the rest waits as if it had never begun."""

from __future__ import annotations

import signal
import time
from collections import Counter

import pytest

from tests.chaos.conftest import StartFleet
from tests.fixtures.waiting import eventually

TASKS = 50
GRACE, LONGEST = 5.0, 60.0


@pytest.mark.chaos
@pytest.mark.alone
@pytest.mark.backends("postgres-newest")
def test_a_drain_ends_in_time_and_costs_the_unfinished_no_attempt(database_url: str, start_fleet: StartFleet):
    fleet, queue = start_fleet(database_url)
    service = fleet.start("--concurrency", "25", "--grace", str(GRACE), processes=2)
    # Coroutines, threads, and some that refuse to end; from a fifth of the grace to far beyond it.
    names = ("nap", "work", "nap", "work", "stubborn")
    shortest = GRACE / 5
    durations = [shortest + (LONGEST - shortest) * (n / (TASKS - 1)) ** 3 for n in range(TASKS)]
    for number, seconds in enumerate(durations):
        queue.enqueue(names[number % len(names)], {"seconds": seconds}, max_attempts=4)
    eventually(lambda: len(fleet.ledger.starts()) == TASKS)

    told = time.monotonic()
    service.signal(signal.SIGTERM)
    assert service.wait(180) == 0

    assert not fleet.processes()
    tasks = queue.list(limit=100)
    states = Counter(task.state.value for task in tasks)
    assert set(states) == {"completed", "pending"}, states
    assert states["pending"] > TASKS / 4
    assert {(task.attempts, task.retry_count, task.lost_count) for task in tasks if task.state == "pending"} == {
        (0, 0, 0)
    }
    ends = {entry.task_id: entry.moment for entry in fleet.ledger.entries() if entry.what == "end"}
    completed = {task.id for task in tasks if task.state == "completed"}
    assert completed <= ends.keys()
    assert {task_id for task_id, moment in ends.items() if moment < told + GRACE / 2} <= completed
    assert queue.workers() == []


def test_a_second_signal_ends_everything_now(sqlite_url: str, start_fleet: StartFleet):
    fleet, queue = start_fleet(sqlite_url, worker_timeout_seconds=30)
    service = fleet.start("--concurrency", "10", "--grace", "60")
    ids = [queue.enqueue(name, {"seconds": 120}, max_attempts=4) for name in ("nap", "work", "block_loop")]
    eventually(lambda: len(fleet.ledger.starts()) == 3)

    service.signal(signal.SIGTERM)
    eventually(lambda: "stopping;" in service.log)
    service.signal(signal.SIGTERM)
    assert service.wait(180) == 0

    assert not fleet.processes()
    assert {(queue.get(i).state, queue.get(i).attempts) for i in ids} == {("pending", 0)}


def test_a_signal_to_every_process_at_once_is_one_signal(sqlite_url: str, start_fleet: StartFleet):
    # As service managers send it: the supervisor's own word must not count as the second.
    fleet, queue = start_fleet(sqlite_url, worker_timeout_seconds=30)
    service = fleet.start("--concurrency", "10", "--grace", "60")
    ids = [queue.enqueue(name) for name in ("gated", "gated_thread", "gated_apart")]
    eventually(lambda: len(fleet.ledger.starts()) == 3)

    for process in fleet.processes():
        process.send_signal(signal.SIGTERM)
    eventually(lambda: "stopping;" in service.log)
    fleet.open_gate()

    assert service.wait(180) == 0
    assert [(queue.get(i).state, queue.get(i).attempts) for i in ids] == [("completed", 1)] * 3
