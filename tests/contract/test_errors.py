"""Dead letters: what failed for good, grouped by what went wrong, and started again at a chosen rate."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tasklib import ConfigurationError
from tasklib.core.lifecycle import Ending, Phase
from tasklib.core.queue_info import ErrorGroup
from tasklib.service.error_groups import ErrorGroups
from tasklib.storage.operations import attempts
from tests.fixtures.queues import Face, Instance

ERROR = """Traceback (most recent call last):
  File "/srv/app/tasks.py", line {line}, in send
    connect()
  File "/usr/lib/python3.12/socket.py", line 12, in connect
    raise error
{kind}: no route to {host}"""


def fail(queue: Face, worker: Instance, kind: str = "OSError", name: str = "job", **options: object) -> str:
    """A task that failed for good; each time with another message, from another line."""
    queue.enqueue(name, **options)
    [task] = worker.claim(names=[name]).tasks
    error = ERROR.format(line=task.seq, kind=kind, host=f"host-{task.seq}")
    ending = Ending.give_up(task.id, task.version, error=error)
    queue.do(lambda: attempts.end_attempts([ending]))
    return str(task.id)


def test_failures_are_grouped_by_name_exception_and_place(queue: Face, worker: Instance) -> None:
    first = queue.now
    ids = [fail(queue, worker) for _ in range(2)]
    queue.advance(60)
    ids.append(fail(queue, worker))
    queue.advance(60)
    other = fail(queue, worker, kind="KeyError")
    fail(queue, worker, name="other")
    assert [(group.name, group.fingerprint, group.count) for group in queue.errors()] == [
        ("job", "KeyError in app/tasks.py:send", 1),
        ("other", "OSError in app/tasks.py:send", 1),
        ("job", "OSError in app/tasks.py:send", 3),
    ]
    group = queue.errors(name="job")[1]
    assert (group.first_seen, group.last_seen) == (first, first + timedelta(seconds=60))
    assert (str(group.example), group.message) == (ids[2], f"OSError: no route to host-{queue.get(ids[2]).seq}")
    assert [str(task.id) for task in queue.list(fingerprint="KeyError in app/tasks.py:send")] == [other]
    assert len(queue.errors(limit=1)) == 1


def test_only_what_failed_for_good_is_a_dead_letter(queue: Face) -> None:
    for phase in (Phase.BURIED, Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED, Phase.RETRYING, Phase.RUNNING):
        queue.task_in(phase)
    queue.enqueue("job")
    groups = queue.errors()
    assert {str(group.example) for group in groups} == {
        str(t.id) for t in queue.list(state=["failed", "buried"]) if t.completed_at
    }
    assert sum(group.count for group in groups) == 2
    assert "WorkerLost" in {group.fingerprint for group in groups}


def test_a_group_is_started_again_at_a_rate(queue: Face, worker: Instance) -> None:
    ids = [fail(queue, worker) for _ in range(5)]
    fail(queue, worker, kind="KeyError")
    group = next(group for group in queue.errors() if group.count == 5)
    assert queue.redrive(group, rate=2, dry_run=True) == 5
    assert queue.redrive(group.id, rate=2) == 5
    due = [(queue.get(task_id).scheduled_at - queue.now).total_seconds() for task_id in ids]
    assert due == [0.0, 0.5, 1.0, 1.5, 2.0]
    task = queue.get(ids[4])
    assert (task.state, task.attempts, task.error) == ("pending", 0, None)
    assert [group.fingerprint for group in queue.errors()] == ["KeyError in app/tasks.py:send"]


def test_secrets_in_messages_are_hidden_from_front_ends(queue: Face, worker: Instance) -> None:
    queue.enqueue("job", {"password": "hunter22"})
    [task] = worker.claim().tasks
    ending = Ending.give_up(task.id, task.version, error="ValueError: wrong password hunter22")
    queue.do(lambda: attempts.end_attempts([ending]))
    [group] = ErrorGroups(queue.plain).all()
    assert group.message.startswith("ValueError: wrong password")
    assert "hunter22" not in group.message


def test_a_group_is_started_again_all_at_once(queue: Face, worker: Instance) -> None:
    for _ in range(3):
        fail(queue, worker)
    assert queue.redrive(queue.errors()[0]) == 3
    assert len(worker.claim().tasks) == 3


def test_a_task_whose_unique_key_is_taken_again_stays(queue: Face, worker: Instance) -> None:
    stays = fail(queue, worker, unique_key="k")
    fail(queue, worker)
    queue.enqueue("job", unique_key="k")
    assert queue.redrive(queue.errors()[0]) == 1
    assert [(group.count, str(group.example)) for group in queue.errors()] == [(1, stays)]


def test_tasks_failed_by_hand_are_a_group_of_their_own(queue: Face, worker: Instance) -> None:
    fail(queue, worker)
    queue.sql("INSERT INTO tasks (name, state, completed_at) SELECT 'job', 'failed', created_at FROM tasks LIMIT 1")
    group = next(group for group in queue.errors() if group.fingerprint is None)
    assert (group.count, group.message) == (1, "")
    assert queue.redrive(group) == 1


def test_a_group_that_does_not_exist_and_a_rate_that_is_none(queue: Face) -> None:
    with pytest.raises(ConfigurationError, match="no group of errors has the id 'nope'"):
        queue.redrive("nope")
    group = ErrorGroup("x", "job", None, 1, queue.now, queue.now, None, "")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="above 0"):
        queue.redrive(group, rate=0)


def test_counting_what_would_be_deleted_leaves_out_what_is_tried_again(queue: Face) -> None:
    queue.task_in(Phase.RETRYING)
    queue.task_in(Phase.FAILED)
    assert queue.delete_many(state="failed", dry_run=True) == queue.delete_many(state="failed") == 1
