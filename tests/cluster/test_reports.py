"""What a body on a cluster says, and what it is told: all of it arrives, in order, and nothing after its attempt."""

from __future__ import annotations

import pytest

from tests.cluster.conftest import LONG, Fleet, wait
from tests.fixtures.waiting import eventually

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),  # Ray's own, up to 2.50
]
LINES = 120


def test_all_that_a_body_says_arrives_in_order(fleet: Fleet) -> None:
    fleet.start()
    # Long and short ones: the last lines travel with the body's end or before it.
    pauses = [0.0, 0.0, 0.001, 0.002, 0.003, 0.005, 0.01]
    ids = [fleet.queue.enqueue("chatter", {"lines": LINES, "pause": pause}) for pause in pauses]
    for task_id in ids:
        task = wait(fleet, task_id)
        assert [line.text for line in task.log] == [f"line {number}" for number in range(LINES)]
        assert (task.progress, task.progress_message) == (1.0, f"line {LINES - 1}")
        assert task.result == {"value": task.version}


def test_progress_and_lines_are_on_the_row_while_the_body_runs(fleet: Fleet) -> None:
    fleet.start()
    task_id = fleet.queue.enqueue("say_and_wait", {"seconds": LONG})

    def said() -> bool:
        task = fleet.queue.get(task_id)
        assert task is not None
        assert task.state != "completed"
        return (task.progress, [line.text for line in task.log]) == (0.25, ["a quarter"])

    eventually(said)
    fleet.queue.cancel(task_id)
    assert wait(fleet, task_id).state == "cancelled"


def test_a_body_sees_that_it_is_cancelled_and_its_last_words_are_kept(fleet: Fleet) -> None:
    fleet.start()
    task_id = fleet.queue.enqueue("say_and_wait", {"seconds": LONG})
    fleet.started(task_id)
    fleet.queue.cancel(task_id)

    task = wait(fleet, task_id)
    assert task.state == "cancelled"
    assert [line.text for line in task.log] == ["a quarter", "cancelled: True"]


def test_each_attempt_says_things_under_its_own_token_and_none_after_its_end(fleet: Fleet) -> None:
    fleet.start()
    task_id = fleet.queue.enqueue("say_until_stopped", max_attempts=2, timeout_seconds=2)

    task = wait(fleet, task_id)
    assert (task.state, task.attempts) == ("completed", 2)
    attempts = [line.attempt for line in task.log]
    assert attempts == sorted(attempts)
    assert set(attempts) == {1, 2}
    tokens = [entry.version for entry in fleet.ledger.starts_of(task_id)]
    said = [[int(part) for part in line.text.split(":")] for line in task.log]
    assert [token for token, _ in said] == [tokens[attempt - 1] for attempt in attempts]
    assert said == sorted(said)
    # SIGTERM may come between a line and the counting of it, which is then said again; but none is missing.
    numbers = {number for token, number in said if token == tokens[0]}
    assert numbers == set(range(len(numbers)))
    assert said[-1] == [tokens[1], 0]
    assert (task.progress, task.progress_message) == (1.0, f"{tokens[1]}")
    settled = (task.progress, task.log)
    assert wait(fleet, fleet.queue.enqueue("add", {"a": 1, "b": 1})).result == {"value": 2}
    later = fleet.queue.get(task_id)
    assert later is not None
    assert (later.progress, later.log) == settled


def test_a_workflow_on_a_cluster_says_that_it_needs_its_worker(fleet: Fleet) -> None:
    fleet.start()
    task = wait(fleet, fleet.queue.enqueue("step_there", max_attempts=1))

    assert task.state == "failed"
    assert "cannot run on a cluster" in (task.error or "")
