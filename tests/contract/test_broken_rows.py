"""A row that nobody can read fails alone; what a row by hand leaves open, the declaration or the settings decide."""

from __future__ import annotations

import pytest

from tasklib import TaskContext, TaskState
from tasklib.storage.operations.workflows.events import list_questions
from tasklib.storage.operations.workflows.steps import list_steps
from tests.fixtures.queues import Face

DEEP = "[" * 900 + "]" * 900  # SQLite from 3.46 on refuses 1,000 levels by itself
HUGE = '{"n": ' + "9" * 5000 + "}"


def test_a_payload_that_cannot_be_read_fails_for_good_and_the_next_is_run(queue: Face):
    queue.register_handler("job", lambda payload: payload)
    for payload in (DEEP, HUGE):
        queue.sql(f"INSERT INTO tasks (name, kwargs, priority, max_retries) VALUES ('job', '{payload}', 5, 7)")
    good = queue.enqueue("job", 1)

    queue.process_batch()

    assert queue.read(good).result == {"value": 1}
    bad = queue.list(state="failed")
    assert len(bad) == 2
    for task in bad:
        assert (task.attempts, task.retry_count, task.kwargs) == (1, 0, None)
        assert task.completed_at is not None
        assert "UnreadableTask" in (task.error or "")
        assert "kwargs cannot be read" in (task.unreadable or "")
        assert task.history[-1].outcome == "failed"
    assert queue.read(good).unreadable is None


def test_a_worker_that_holds_only_unreadable_tasks_looks_on(queue: Face, worker):
    for payload in (DEEP, HUGE, DEEP):
        queue.sql(f"INSERT INTO tasks (name, kwargs, priority) VALUES ('job', '{payload}', 5)")
    good = queue.enqueue("job")

    claimed = [worker.claim(limit=1) for _ in range(4)]

    assert [[task.id for task in each.tasks] for each in claimed] == [[], [], [], [str(good)]]
    assert all(each.contended for each in claimed[:3])
    assert queue.count(state="failed") == 3


@pytest.mark.backends("sqlite-file")
def test_a_concurrency_key_that_is_no_text_fails_alone(queue: Face):
    """SQLite alone can hold one; one that only looks like it, with the mark for odd bytes in it, is run."""
    queue.register_handler("job", lambda payload: payload)
    good = [queue.enqueue("job", n, concurrency_key=key) for n, key in enumerate(("k", "k\ufffd", "\ufffd"))]
    for key in ("ff", "6bff"):
        queue.sql(f"INSERT INTO tasks (name, concurrency_key, priority) VALUES ('job', CAST(x'{key}' AS TEXT), 5)")
    later = queue.enqueue("job", 4, concurrency_key="k")

    while queue.process_batch():
        pass

    assert [queue.read(each).state for each in (*good, later)] == ["completed"] * 4
    bad = queue.list(state="failed")
    assert len(bad) == 2
    for task in bad:
        assert "UnreadableTask" in (task.error or "")
        assert task.unreadable == "concurrency_key cannot be read (it is not UTF-8)"
        assert queue.read(task.id).unreadable == task.unreadable
    assert {queue.read(each).unreadable for each in good} == {None}
    assert queue.errors()[0].count == 2


def test_a_broken_past_is_shown_as_such(queue: Face):
    queue.sql(
        "INSERT INTO tasks (name, state, completed_at, result, history, log)"
        " VALUES ('job', 'completed', '2024-01-01 00:00:00', '[1]', '{\"a\": 1}', '[3]')"
    )
    (task,) = queue.list()

    assert (task.state, task.result, task.history, task.log) == (TaskState.COMPLETED, None, (), ())
    for column in ("result", "history", "log"):
        assert f"{column} cannot be read" in (task.unreadable or "")


@pytest.mark.parametrize("declared, given, in_force", [(0, "", 0), (None, "", 4), (2, ", max_retries", 1)])
def test_a_row_by_hand_is_retried_as_its_declaration_or_the_settings_say(
    queue: Face, declared: int | None, given: str, in_force: int
):
    queue.plain.config = queue.plain.config.with_(max_retries=4)

    @queue.plain.task(name="job", max_retries=declared)
    def job() -> None:
        raise RuntimeError

    queue.sql(f"INSERT INTO tasks (name{given}) VALUES ('job'{', 1' if given else ''})")
    assert (queue.sql("SELECT max_retries FROM tasks")[0]["max_retries"] == -1) is not bool(given)

    queue.process_batch()

    (task,) = queue.list()
    assert task.max_retries == in_force == queue.sql("SELECT max_retries FROM tasks")[0]["max_retries"]
    assert (task.next_retry_at is None) is (in_force == 0)


def test_a_record_that_cannot_be_read_hides_no_other(queue: Face):
    @queue.task
    def asking(ctx: TaskContext) -> bool:
        ctx.options(name="look").step(len, "abc")
        return ctx.wait("approval", bool, ask="Go on?")

    broken, whole = asking.submit(), asking.submit()
    queue.process_batch()
    digits = "1" + "0" * 5000
    queue.sql(f"UPDATE tasklib_steps SET value = '{digits}' WHERE task_id = '{broken}' AND kind = 'step'")
    queue.sql(
        f'UPDATE tasklib_steps SET ask = \'{{"question": "Go on?", "schema": {digits}}}\' '
        f"WHERE task_id = '{broken}' AND kind = 'ask'"
    )

    first, second = queue.do(lambda: list_steps(broken))
    assert (first.value, second.question) == (None, None)
    assert "value cannot be read" in (first.note or "")
    assert "ask cannot be read" in (second.note or "")
    questions = queue.do(list_questions)
    assert {each["task_id"]: each["question"][:18] for each in questions} == {
        broken: "ask cannot be read",
        whole: "Go on?",
    }
