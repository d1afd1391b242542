"""Cancelling: at once while a task waits, by request while it runs, never once it has ended."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tasklib import InvalidTransition, TaskState
from tasklib.core.lifecycle import TERMINAL, WAITING, Phase
from tests.fixtures.queues import Face, Instance

MOMENT = timedelta(seconds=1)


@pytest.mark.parametrize("phase", sorted(WAITING))
def test_a_waiting_task_is_cancelled_at_once(queue: Face, worker: Instance, phase: Phase):
    waiting = queue.task_in(phase)

    answer = queue.cancel(waiting.id)

    assert answer == queue.read(waiting.id)
    assert (answer.state, answer.completed_at) == (TaskState.CANCELLED, queue.now)
    assert (answer.next_retry_at, answer.due_at, answer.attempts) == (None, None, waiting.attempts)
    queue.advance(3600)
    assert worker.claim_ids() == []


def test_a_delayed_task_is_cancelled_at_once(queue: Face):
    task_id = queue.enqueue("job", delay_seconds=60)

    assert queue.cancel(task_id).state == TaskState.CANCELLED


def test_a_running_task_is_asked_to_stop(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    claimed = worker.take(task_id)

    answer = queue.cancel(task_id)

    assert (answer.state, answer.cancel_requested_at, answer.completed_at) == (TaskState.RUNNING, queue.now, None)
    assert (answer.version, answer.worker_id) == (claimed.version, worker.worker_id)
    assert worker.look(claimed) == (set(), {claimed.id})


def test_asking_again_keeps_the_first_request(queue: Face):
    running = queue.task_in(Phase.RUNNING)
    first = queue.cancel(running.id).cancel_requested_at
    queue.advance(5)

    assert queue.cancel(running.id).cancel_requested_at == first


def test_a_completion_that_lands_first_wins(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    claimed = worker.take(task_id)
    queue.cancel(task_id)

    assert worker.complete(claimed, "done")

    task = queue.read(task_id)
    assert (task.state, task.result, task.cancel_requested_at) == (TaskState.COMPLETED, {"value": "done"}, None)


@pytest.mark.parametrize("way", ["snooze", "release", "fail"])
def test_a_task_that_would_come_back_is_cancelled_if_that_was_asked_for(queue: Face, worker: Instance, way: str):
    task_id = queue.enqueue("job", unique_key="k", max_attempts=5)
    claimed = worker.take(task_id)
    asked = queue.cancel(task_id).cancel_requested_at

    assert getattr(worker, way)(claimed)

    task = queue.read(task_id)
    assert (task.state, task.cancel_requested_at, task.next_retry_at) == (TaskState.CANCELLED, asked, None)
    assert queue.now - MOMENT < task.completed_at <= queue.now
    assert (task.retry_count, task.worker_id, task.locked_until) == (0, None, None)
    assert task.error == ("ValueError: no" if way == "fail" else None)
    queue.advance(3600)
    assert worker.claim_ids() == []
    assert queue.enqueue("job", unique_key="k") != task_id


@pytest.mark.parametrize("phase", sorted(TERMINAL))
def test_a_task_that_has_ended_is_not_cancelled(queue: Face, phase: Phase):
    ended = queue.task_in(phase)
    before = queue.bytes_of(ended.id)

    with pytest.raises(InvalidTransition, match=rf"cancel.*{phase}") as caught:
        queue.cancel(ended.id)

    assert (caught.value.task_id, caught.value.state) == (ended.id, phase)
    assert queue.bytes_of(ended.id) == before


def test_many_are_cancelled_by_filter(queue: Face):
    running = queue.task_in(Phase.RUNNING)
    retrying = queue.task_in(Phase.RETRYING)
    done = queue.task_in(Phase.COMPLETED)
    pending, delayed = queue.enqueue("job"), queue.enqueue("job", delay_seconds=60)
    other = queue.enqueue("other")

    assert queue.cancel_many(name="job") == 4

    states = {each: queue.read(each).state.value for each in (retrying.id, pending, delayed, done.id, other)}
    assert list(states.values()) == ["cancelled", "cancelled", "cancelled", "completed", "pending"]
    assert queue.read(running.id).cancel_requested_at == queue.now


def test_a_dry_run_counts_and_changes_nothing(queue: Face):
    running, pending = queue.task_in(Phase.RUNNING), queue.task_in(Phase.PENDING)
    queue.task_in(Phase.PENDING, "other")
    before = [queue.bytes_of(each.id) for each in (running, pending)]

    assert queue.cancel_many(name="job", dry_run=True) == 2
    assert [queue.bytes_of(each.id) for each in (running, pending)] == before


def test_states_given_narrow_the_filter(queue: Face):
    running = queue.task_in(Phase.RUNNING)
    queue.enqueue("job")

    assert queue.cancel_many(state="pending") == 1
    assert queue.read(running.id).cancel_requested_at is None
