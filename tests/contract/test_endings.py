"""How an attempt ends: each ending with its state, its counters and its times."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tasklib import Retry, TaskState
from tasklib.core.lifecycle import Ending, Phase, phase_of
from tasklib.storage.operations import attempts
from tests.fixtures.queues import Face, Instance


def test_success_stores_the_result_and_frees_the_worker(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    claimed = worker.take(task_id)
    queue.advance(10)

    assert worker.complete(claimed, {"answer": 42})

    task = queue.read(task_id)
    assert (task.state, task.result, task.error) == (TaskState.COMPLETED, {"value": {"answer": 42}}, None)
    assert (task.attempts, task.retry_count, task.version) == (1, 0, 1)
    assert task.completed_at == queue.now
    assert (task.updated_at, task.worker_id, task.locked_until, task.next_retry_at) == (queue.now, None, None, None)


def test_the_result_may_be_nothing(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    worker.complete(worker.take(task_id), None)

    assert queue.read(task_id).result == {"value": None}


def test_a_failure_with_attempts_left_waits_for_its_retry(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    claimed = worker.take(task_id)

    assert worker.fail(claimed, delay=7.5, error="Traceback\nValueError: no")

    task = queue.read(task_id)
    assert (task.state, task.error, task.result) == (TaskState.FAILED, "Traceback\nValueError: no", None)
    assert (task.attempts, task.retry_count, task.version) == (1, 1, 1)
    assert task.next_retry_at == task.due_at == queue.now + timedelta(seconds=7.5)
    assert (task.completed_at, task.worker_id, task.locked_until) == (None, None, None)


def test_the_scheduled_time_does_not_move_on_retry(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    scheduled_at = queue.now
    worker.fail(worker.take(task_id), delay=7)
    queue.advance(7)
    worker.fail(worker.take(task_id), delay=7)

    assert queue.read(task_id).scheduled_at == scheduled_at


def test_giving_up_ends_the_task(queue: Face, worker: Instance):
    task_id = queue.enqueue("job", max_retries=0)
    claimed = worker.take(task_id)
    queue.advance(3)

    assert worker.give_up(claimed, error="ValueError: never")

    task = queue.read(task_id)
    assert (task.state, task.error) == (TaskState.FAILED, "ValueError: never")
    assert (task.attempts, task.retry_count, task.next_retry_at) == (1, 0, None)
    assert task.completed_at == queue.now
    assert (task.worker_id, task.locked_until) == (None, None)


def test_after_the_last_retry_the_counters_are_full(queue: Face, worker: Instance):
    task_id = queue.enqueue("job", max_retries=2)
    for _ in range(2):
        worker.fail(worker.take(task_id), delay=1)
        queue.advance(1)
    worker.give_up(worker.take(task_id))

    task = queue.read(task_id)
    assert (task.attempts, task.retry_count, task.max_retries, task.version) == (3, 2, 2, 3)


def test_snoozing_gives_the_attempt_back(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    claimed = worker.take(task_id)

    assert worker.snooze(claimed, delay=30)

    task = queue.read(task_id)
    assert (task.state, task.attempts, task.retry_count, task.version) == (TaskState.PENDING, 0, 0, 1)
    assert task.due_at == queue.now + timedelta(seconds=30)
    assert (task.completed_at, task.worker_id, task.locked_until, task.error) == (None,) * 4


def test_snoozing_without_end_spends_nothing(queue: Face, worker: Instance):
    task_id = queue.enqueue("job", max_retries=0)
    for _ in range(5):
        worker.snooze(worker.take(task_id), delay=1)
        queue.advance(1)

    assert (queue.read(task_id).attempts, queue.read(task_id).version) == (0, 5)


def test_releasing_gives_the_task_back_at_once(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")

    assert worker.release(worker.take(task_id))

    task = queue.read(task_id)
    assert (task.state, task.attempts, task.retry_count, task.next_retry_at) == (TaskState.PENDING, 0, 0, None)
    assert worker.claim_ids() == [task_id]


def test_a_released_retry_keeps_what_it_had_spent(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    worker.fail(worker.take(task_id), delay=1)
    queue.advance(1)
    worker.release(worker.take(task_id))

    task = queue.read(task_id)
    assert (phase_of(task), task.attempts, task.retry_count) == (Phase.RETRYING, 1, 1)
    assert (task.error, task.next_retry_at, task.completed_at) == ("ValueError: no", queue.now, None)
    assert worker.claim_ids() == [task_id]


def test_a_released_task_whose_worker_was_lost_before_is_pending_again(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    queue.worker(timeout_seconds=0.001).take(task_id)
    queue.advance(0.01)
    queue.recover()
    worker.release(worker.take(task_id))

    task = queue.read(task_id)
    assert (task.state, task.attempts, task.retry_count, task.next_retry_at) == (TaskState.PENDING, 1, 1, None)


def test_a_release_of_a_retry_said_again_after_a_lost_reply_is_known(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    worker.fail(worker.take(task_id), delay=0)
    released = worker.take(task_id)
    ending = Ending.release(released.id, released.version)

    assert queue.do(lambda: attempts.end_attempts([ending])) == set()
    assert queue.do(lambda: attempts.end_attempts([ending], again=True)) == set()


def test_a_batch_leaves_a_retry_that_is_due_at_once_waiting_as_a_retry(queue: Face):
    def fail(payload: object) -> None:
        raise Retry(delay=0)

    queue.plain.register_handler("job", fail)
    task_id = queue.enqueue("job", max_retries=5)

    assert queue.process_batch() == 1

    task = queue.read(task_id)
    assert (phase_of(task), task.attempts, task.retry_count) == (Phase.RETRYING, 1, 1)
    assert task.next_retry_at is not None


def test_a_cancelled_attempt_is_terminal(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    claimed = worker.take(task_id)
    queue.cancel(task_id)

    assert worker.cancelled(claimed)

    task = queue.read(task_id)
    assert (task.state, task.attempts, task.worker_id) == (TaskState.CANCELLED, 1, None)
    assert task.completed_at == queue.now
    assert task.cancel_requested_at == queue.now


def test_success_after_a_failure_clears_the_error(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    worker.fail(worker.take(task_id), delay=1)
    queue.advance(1)
    worker.complete(worker.take(task_id))

    task = queue.read(task_id)
    assert (task.state, task.error, task.attempts, task.retry_count) == (TaskState.COMPLETED, None, 2, 1)


def test_the_time_really_taken_is_written_at_the_end(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    claimed = worker.take(task_id)
    queue.advance(60)

    worker.complete(claimed, started_ago=20, ended_ago=5)

    task = queue.read(task_id)
    assert task.started_at == queue.now - timedelta(seconds=20)
    assert task.completed_at == queue.now - timedelta(seconds=5)


@pytest.mark.parametrize("ending", ["retry_later", "give_up", "cancel"])
def test_every_other_ending_writes_the_time_really_taken_too(queue: Face, worker: Instance, ending: str):
    task_id = queue.enqueue("job")
    claimed = worker.take(task_id)
    queue.advance(60)
    details = {"retry_later": {"delay": 1, "error": "E: e"}, "give_up": {"error": "E: e"}, "cancel": {}}[ending]

    worker.end(_ran(getattr(Ending, ending)(claimed.id, claimed.version, **details), started_ago=20, ended_ago=5))

    task = queue.read(task_id)
    (attempt,) = task.history
    assert attempt.started_at == task.started_at == queue.now - timedelta(seconds=20)
    assert attempt.ended_at == queue.now - timedelta(seconds=5)
    assert task.completed_at in (None, attempt.ended_at)


def test_many_attempts_end_in_one_statement_each_in_its_way(queue: Face, worker: Instance):
    ids = [queue.enqueue("job") for _ in range(5)]
    first, second, third, fourth, fifth = worker.claim(5).tasks

    assert worker.end(
        Ending.retry_later(first.id, first.version, delay=1, error="E: 1"),
        Ending.give_up(second.id, second.version, error="E: 2"),
        Ending.snooze(third.id, third.version, delay=1),
        Ending.release(fourth.id, fourth.version),
        Ending.cancel(fifth.id, fifth.version),
    )

    states = [queue.read(task_id).state.value for task_id in ids]
    assert states == ["failed", "failed", "pending", "pending", "cancelled"]


def test_an_error_keeps_what_every_database_can(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")

    worker.give_up(worker.take(task_id), error="a\0b \ud800 é \U0001f600 it's %s :x")

    assert queue.read(task_id).error == "a\\x00b \\ud800 é \U0001f600 it's %s :x"


def test_a_giant_error_is_cut_in_its_middle(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")

    worker.give_up(worker.take(task_id), error="first line\n" + "x" * 1_000_000 + "\nValueError: last line")

    error = queue.read(task_id).error
    assert len(error) <= 100_000
    assert error.startswith("first line\n")
    assert error.endswith("\nValueError: last line")


def _ran(ending: Ending, *, started_ago: float, ended_ago: float) -> Ending:
    return ending.between(-started_ago, -ended_ago)
