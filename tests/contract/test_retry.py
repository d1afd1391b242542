"""Retry by hand: a task starts anew, as often as a person wants."""

from __future__ import annotations

import pytest

from tasklib import InvalidTransition, TaskState
from tasklib.core.lifecycle import TERMINAL, Phase
from tests.fixtures.queues import Face, Instance

RETRYABLE = [*sorted(TERMINAL), Phase.RETRYING]


@pytest.mark.parametrize("phase", RETRYABLE)
def test_a_task_starts_anew_from_zero_attempts(queue: Face, worker: Instance, phase: Phase):
    old = queue.task_in(phase)

    answer = queue.retry(old.id)

    assert answer == queue.read(old.id)
    assert (answer.state, answer.attempts, answer.retry_count, answer.lost_count) == (TaskState.PENDING, 0, 0, 0)
    assert (answer.completed_at, answer.next_retry_at, answer.result, answer.error) == (None,) * 4
    assert (answer.progress, answer.cancel_requested_at, answer.updated_at) == (None, None, queue.now)
    assert answer.version == old.version
    assert worker.claim_ids() == [old.id]
    assert queue.read(old.id).version == old.version + 1


def test_all_its_retries_are_there_again(queue: Face, worker: Instance):
    task_id = queue.enqueue("job", max_retries=1)
    for _ in range(2):
        worker.fail(worker.take(task_id), delay=0)
        worker.give_up(worker.take(task_id))
        queue.retry(task_id)

    task = queue.read(task_id)
    assert (task.state, task.attempts, task.retry_count, task.version) == (TaskState.PENDING, 0, 0, 4)


def test_a_cancelled_task_that_was_delayed_is_due_at_once(queue: Face, worker: Instance):
    task_id = queue.enqueue("job", delay_seconds=3600)
    queue.cancel(task_id)

    queue.retry(task_id)

    assert worker.claim_ids() == [task_id]


def test_an_expired_task_runs_when_retried(queue: Face, worker: Instance):
    task_id = queue.enqueue("job", expires_at=queue.now)
    worker.claim()
    assert queue.read(task_id).state == TaskState.CANCELLED

    queue.retry(task_id)

    assert worker.claim_ids() == [task_id]


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.RUNNING])
def test_what_waits_or_runs_is_not_retried(queue: Face, phase: Phase):
    task = queue.task_in(phase)
    before = queue.bytes_of(task.id)

    with pytest.raises(InvalidTransition, match=rf"retry.*{phase}"):
        queue.retry(task.id)

    assert queue.bytes_of(task.id) == before


def test_many_are_retried_by_filter(queue: Face):
    phases = [Phase.BURIED, Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED, Phase.RETRYING, Phase.RUNNING]
    ids = [queue.task_in(phase).id for phase in phases]
    other = queue.task_in(Phase.FAILED, "other").id

    assert queue.retry_many(name="job", state=["buried", "completed", "failed", "cancelled"]) == 5

    states = [queue.read(each).state.value for each in [*ids, other]]
    assert states == ["pending"] * 5 + ["running", "failed"]


def test_states_given_narrow_the_filter(queue: Face):
    failed, done = queue.task_in(Phase.FAILED), queue.task_in(Phase.COMPLETED)

    assert queue.retry_many(state="failed") == 1
    assert [queue.read(each.id).state.value for each in (failed, done)] == ["pending", "completed"]


def test_a_dry_run_counts_and_changes_nothing(queue: Face):
    failed = queue.task_in(Phase.FAILED)
    queue.enqueue("job")
    before = queue.bytes_of(failed.id)

    assert queue.retry_many(dry_run=True) == 1
    assert queue.bytes_of(failed.id) == before


def test_of_many_with_one_unique_key_the_first_comes_back(queue: Face):
    first, second = (queue.task_in(Phase.FAILED, unique_key="k") for _ in range(2))
    free = queue.task_in(Phase.FAILED, unique_key="l")

    assert queue.retry_many(state="failed") == 2
    assert [queue.read(each.id).state.value for each in (first, second, free)] == ["pending", "failed", "pending"]


def test_one_that_waits_for_its_retry_with_a_key_is_started_anew(queue: Face):
    retrying = queue.task_in(Phase.RETRYING, unique_key="k")
    queue.task_in(Phase.FAILED, unique_key="l")

    assert queue.retry_many(dry_run=True) == queue.retry_many() == 2
    assert queue.read(retrying.id).attempts == 0


def test_one_whose_key_is_taken_is_passed_over(queue: Face):
    failed = queue.task_in(Phase.FAILED, unique_key="k")
    free = queue.task_in(Phase.FAILED)
    queue.enqueue("job", unique_key="k")

    assert queue.retry_many(name="job") == 1
    assert [queue.read(each.id).state.value for each in (failed, free)] == ["failed", "pending"]
