"""Changing the priority of stored tasks, one or many: what waits changes its place, what runs goes on."""

from __future__ import annotations

from typing import Any

import pytest

from tasklib import ConfigurationError, InvalidTransition, TaskNotFound
from tasklib.core.lifecycle import LIVE, TERMINAL, Phase
from tests.fixtures.queues import Face, Instance


def test_a_task_is_claimed_in_its_new_place(queue: Face, worker: Instance) -> None:
    first, second = queue.enqueue("job"), queue.enqueue("job")
    assert queue.set_priority(second, 5).priority == 5
    assert worker.claim_ids() == [second, first]


def test_a_task_with_a_key_is_claimed_in_its_new_place(queue: Face, worker: Instance) -> None:
    first, second = (queue.enqueue("job", concurrency_key="ada") for _ in range(2))
    queue.set_priority(second, 5)
    assert worker.claim_ids() == [second]
    assert queue.read(first).state == "pending"


@pytest.mark.parametrize("phase", sorted(LIVE))
def test_nothing_else_of_a_live_task_changes(queue: Face, worker: Instance, phase: Phase) -> None:
    old = queue.task_in(phase)
    new = queue.set_priority(old.id, -7)
    assert (new.state, new.version, new.attempts, new.due_at) == (old.state, old.version, old.attempts, old.due_at)
    assert (new.priority, new.updated_at) == (-7, queue.now)


@pytest.mark.parametrize("phase", sorted(TERMINAL))
def test_a_finished_task_keeps_its_priority(queue: Face, phase: Phase) -> None:
    old = queue.task_in(phase)
    with pytest.raises(InvalidTransition, match="prioritize is possible when it is pending, running, retrying"):
        queue.set_priority(old.id, 5)
    assert queue.read(old.id) == old


def test_many_are_changed_by_filter_after_a_dry_run(queue: Face) -> None:
    done, other = queue.task_in(Phase.COMPLETED), queue.enqueue("other")
    jobs = [queue.enqueue("job") for _ in range(3)]
    assert queue.set_priority_many(9, name="job", dry_run=True) == 3
    assert queue.read(jobs[0]).priority == 0
    assert queue.set_priority_many(9, name="job") == 3
    assert [queue.read(each).priority for each in (*jobs, other, done.id)] == [9, 9, 9, 0, 0]


@pytest.mark.parametrize("priority", [1.5, True, "9", 2**31, None])
def test_what_is_no_priority_is_refused_by_value(queue: Face, priority: Any) -> None:
    with pytest.raises(ConfigurationError, match="whole number"):
        queue.set_priority(queue.enqueue("job"), priority)


def test_a_task_that_does_not_exist(queue: Face) -> None:
    with pytest.raises(TaskNotFound):
        queue.set_priority("0199f1e2-7c3a-7000-8000-000000000000", 1)
