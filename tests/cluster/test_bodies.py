"""Bodies on a cluster keep every promise: what they return, what they say, and that they end when they must."""

from __future__ import annotations

import psutil
import pytest

from tests.cluster.conftest import LONG, SLOTS, Fleet, is_gone, wait
from tests.fixtures.waiting import eventually

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),  # Ray's own, up to 2.50
]


def test_results_errors_and_the_context_come_back(fleet: Fleet) -> None:
    fleet.start()
    added = fleet.queue.enqueue("add", {"a": 1, "b": 2})
    awaited = fleet.queue.enqueue("add_async", {"a": 3, "b": 4})
    talked = fleet.queue.enqueue("talk")
    failed = fleet.queue.enqueue("fail", max_attempts=1)

    assert wait(fleet, added).result == {"value": 3}
    assert wait(fleet, awaited).result == {"value": 7}
    task = wait(fleet, talked)
    assert task.result == {"value": [task.version, 1]}
    assert (task.progress, [line.text for line in task.log]) == (0.5, ["halfway there"])
    assert fleet.ledger.starts_of(talked)[0].version == task.version
    error = wait(fleet, failed).error or ""
    assert "ValueError: no such luck" in error
    assert "bodies.py" in error


@pytest.mark.parametrize("name", ["sleep", "stubborn"])
def test_a_timeout_ends_the_body_before_the_next_attempt_begins(fleet: Fleet, name: str) -> None:
    fleet.start()
    task_id = fleet.queue.enqueue(name, {"seconds": LONG}, max_attempts=2, timeout_seconds=1)
    first = fleet.started(task_id)
    task = wait(fleet, task_id)

    assert (task.state, task.attempts, task.result) == ("completed", 2, {"value": 2})
    assert "TaskTimeout" in str(task.history)
    assert is_gone(first)


def test_a_cancel_ends_the_body(fleet: Fleet) -> None:
    fleet.start()
    task_id = fleet.queue.enqueue("nap", {"seconds": LONG})
    body = fleet.started(task_id)
    fleet.queue.cancel(task_id)

    assert wait(fleet, task_id).state == "cancelled"
    assert is_gone(body)


def test_a_worker_that_is_killed_leaves_no_body_behind_when_the_task_runs_again(fleet: Fleet) -> None:
    killed = fleet.start()
    task_id = fleet.queue.enqueue("sleep", {"seconds": LONG}, max_attempts=3)
    body = fleet.started(task_id)
    fleet.kill(killed)
    eventually(lambda: is_gone(body))
    fleet.start()
    task = wait(fleet, task_id)

    assert (task.state, task.result) == ("completed", {"value": 2})


def test_a_process_of_the_engine_that_is_killed_costs_one_attempt_and_nothing_is_repeated_by_the_engine(
    fleet: Fleet,
) -> None:
    fleet.start()
    task_id = fleet.queue.enqueue("sleep", {"seconds": LONG}, max_attempts=3)
    body = psutil.Process(fleet.started(task_id))
    engine = body.parent()
    assert engine is not None
    engine.kill()
    task = wait(fleet, task_id)

    assert (task.state, task.attempts, task.result) == ("completed", 2, {"value": 2})
    assert "ProcessDied" in str(task.history)
    assert is_gone(body.pid)


def test_a_body_that_ends_its_process_is_one_failure(fleet: Fleet) -> None:
    fleet.start()
    task = wait(fleet, fleet.queue.enqueue("leave", max_attempts=1))
    assert task.state == "buried"
    assert "exit code 3" in (task.error or "")
    assert wait(fleet, fleet.queue.enqueue("add", {"a": 1, "b": 1})).result == {"value": 2}


def test_a_worker_holds_about_as_many_tasks_as_the_cluster_runs(fleet: Fleet) -> None:
    fleet.start()
    ids = [fleet.queue.enqueue("nap", {"seconds": 1.5}) for _ in range(5 * SLOTS)]
    eventually(lambda: len(fleet.ledger.starts()) > SLOTS, 120)
    assert fleet.queue.count(state="running") <= 2 * SLOTS
    assert {wait(fleet, task_id).state for task_id in ids} == {"completed"}
