"""The record of past attempts on a task's row."""

from __future__ import annotations

import json
from datetime import timedelta

from tasklib.core.lifecycle import Ending
from tests.fixtures.queues import Face, Instance


def test_each_failed_attempt_is_kept_with_its_worker_times_and_summary(queue: Face):
    one, two = queue.worker(), queue.worker()
    task_id = queue.enqueue("job")
    began = queue.now
    claimed = one.take(task_id)
    queue.advance(4)
    one.fail(claimed, delay=6, error="Traceback (most recent call last):\n  ...\nValueError: no")
    queue.advance(6)
    two.give_up(two.take(task_id), error="OSError: gone")

    first, second = queue.read(task_id).history
    assert (first.number, first.worker_id, first.outcome, first.error) == (1, one.worker_id, "failed", "ValueError: no")
    assert (first.started_at, first.ended_at) == (began, began + timedelta(seconds=4))
    assert (second.number, second.worker_id, second.outcome, second.error) == (
        2,
        two.worker_id,
        "failed",
        "OSError: gone",
    )


def test_each_attempt_keeps_its_release_and_its_own_traceback(queue: Face):
    one, two = queue.worker(), queue.worker()
    one.beat(release="1.0")
    two.beat(release="1.1")
    task_id = queue.enqueue("job", max_retries=5)
    for worker, error in ((one, "a\nOSError: x"), (two, "a\nOSError: x"), (one, "b\nKeyError: y")):
        worker.fail(worker.take(task_id), delay=0, error=error)

    history = queue.read(task_id).history
    assert [(each.release, each.traceback) for each in history] == [
        ("1.0", "a\nOSError: x"),
        ("1.1", "a\nOSError: x"),
        ("1.0", "b\nKeyError: y"),
    ]
    stored = json.loads(queue.sql("SELECT history FROM tasks")[0]["history"]) if queue.is_sqlite else None
    assert stored is None or [each["traceback"] is None for each in stored] == [False, True, False]


def test_success_is_the_last_attempt_with_the_worker_that_finished_it(queue: Face):
    one, two = queue.worker(), queue.worker()
    task_id = queue.enqueue("job")
    one.fail(one.take(task_id), delay=0)
    two.complete(two.take(task_id), started_ago=2, ended_ago=1)

    task = queue.read(task_id)
    assert [(each.number, each.outcome, each.worker_id) for each in task.history] == [
        (1, "failed", one.worker_id),
        (2, "completed", two.worker_id),
    ]
    assert (task.history[1].started_at, task.history[1].ended_at) == (task.started_at, task.completed_at)


def test_the_finisher_is_kept_for_every_terminal_ending(queue: Face, worker: Instance):
    ids = [queue.enqueue("job") for _ in range(3)]
    done, failed, stopped = worker.claim(3).tasks
    worker.complete(done)
    worker.give_up(failed)
    worker.cancelled(stopped)

    finishers = [queue.sql(f"SELECT finished_by FROM tasks WHERE id = '{each}'")[0]["finished_by"] for each in ids]
    assert finishers == [worker.worker_id] * 3


def test_an_unfinished_task_has_no_finisher(queue: Face, worker: Instance):
    ids = [queue.enqueue("job") for _ in range(4)]
    first, second, third, _ = worker.claim(4).tasks
    worker.fail(first)
    worker.snooze(second)
    worker.release(third)

    finishers = [queue.sql(f"SELECT finished_by FROM tasks WHERE id = '{each}'")[0]["finished_by"] for each in ids]
    assert finishers == [None] * 4


def test_outcomes_tell_a_timeout_from_a_failure_and_a_cancel(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    claimed = worker.take(task_id)
    worker.end(Ending.retry_later(claimed.id, 1, delay=0, error="TaskTimeout: 5 s", outcome="timeout"))
    worker.fail(worker.take(task_id), delay=0)
    worker.cancelled(worker.take(task_id))

    assert [each.outcome for each in queue.read(task_id).history] == ["timeout", "failed", "cancelled"]


def test_a_snoozed_or_released_attempt_leaves_no_trace(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    worker.snooze(worker.take(task_id), delay=0)
    worker.release(worker.take(task_id))

    assert queue.read(task_id).history == ()


def test_the_last_twenty_attempts_are_kept(queue: Face, worker: Instance):
    task_id = queue.enqueue("job", max_retries=100)
    for n in range(1, 24):
        worker.fail(worker.take(task_id), delay=0, error=f"E: {n}")

    history = queue.read(task_id).history
    assert [(each.number, each.error) for each in history] == [(n, f"E: {n}") for n in range(4, 24)]


def test_a_summary_is_one_bounded_line(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    worker.fail(worker.take(task_id), error="x" * 5000 + "\nmore of its message")

    (attempt,) = queue.read(task_id).history
    assert len(attempt.error) <= 500
    assert attempt.error.startswith("xxx")


def test_an_empty_error_is_kept_as_empty(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    worker.fail(worker.take(task_id), error="")

    assert queue.read(task_id).history[0].error == ""


def test_a_retry_by_hand_keeps_the_record(queue: Face, worker: Instance):
    task_id = queue.enqueue("job", max_retries=0)
    worker.give_up(worker.take(task_id), error="E: before")
    queue.retry(task_id)
    worker.give_up(worker.take(task_id), error="E: after")

    assert [each.error for each in queue.read(task_id).history] == ["E: before", "E: after"]


def test_other_programs_read_past_attempts_and_log_lines_by_the_names_of_their_fields(queue: Face, worker: Instance):
    task = queue.enqueue("job") and worker.take()
    worker.log(task, "hello")
    worker.fail(task, delay=0, error="OSError: gone")

    (row,) = queue.sql("SELECT history -> 0 ->> 'outcome' AS outcome, history -> 0 ->> 'error' AS error FROM tasks")
    assert row == {"outcome": "failed", "error": "OSError: gone"}
    (row,) = queue.sql("SELECT history, log FROM tasks")
    stored = {name: json.loads(text) if isinstance(text, str) else text for name, text in row.items()}
    assert [set(each) for each in stored["history"]] == [
        {"number", "started_at", "ended_at", "worker_id", "outcome", "error", "release", "traceback"}
    ]
    assert [set(each) for each in stored["log"]] == [{"attempt", "elapsed", "level", "text"}]
