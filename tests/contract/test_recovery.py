"""What becomes of a task whose worker vanished."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from tasklib import TaskState
from tasklib.storage.operations import workers
from tasklib.storage.rows import ClaimedTask
from tests.fixtures.queues import NOON, Face, Form, Instance, open_queue


def lose(queue: Face, task_id: UUID, **who: object) -> ClaimedTask:
    """Let a worker claim the task and vanish."""
    worker = queue.worker(timeout_seconds=0.001, **who)
    claimed = worker.take(task_id)
    queue.advance(0.01)
    assert queue.recover() == 1
    return claimed


def test_the_first_time_it_is_due_at_once(queue: Face):
    task_id = queue.enqueue("job")

    lose(queue, task_id)

    task = queue.read(task_id)
    assert (task.state, task.attempts, task.retry_count, task.lost_count) == (TaskState.PENDING, 1, 1, 1)
    assert (task.next_retry_at, task.completed_at, task.worker_id, task.locked_until) == (None,) * 4
    assert (task.version, task.updated_at) == (1, queue.now)
    assert queue.worker().claim_ids() == [task_id]


def test_after_that_it_waits_by_the_retry_policy(queue: Face):
    task_id = queue.enqueue("job", max_retries=5)
    waits = []
    for _ in range(4):
        lose(queue, task_id)
        task = queue.read(task_id)
        assert task.state == TaskState.PENDING
        waits.append((task.due_at - queue.now).total_seconds() if task.next_retry_at else None)
        queue.advance(waits[-1] or 0)

    assert waits == [None, 10, 20, 40]


def test_the_wait_is_spread_but_never_longer_than_the_longest(database_url: str, form: Form):
    with open_queue(database_url, form, retry_jitter=0.9, max_retry_delay_seconds=8) as queue:
        ids = [queue.enqueue("job") for _ in range(40)]
        for _ in range(2):
            queue.worker(timeout_seconds=0.001).claim(40)
            queue.advance(0.01)
            assert queue.recover() == 40
        waits = [(queue.read(each).due_at - queue.now).total_seconds() for each in ids]

    assert len(set(waits)) > 2
    assert min(waits) > 0
    assert max(waits) <= 8


def test_an_ordinary_failure_before_does_not_count_as_a_loss(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    worker.fail(worker.take(task_id), delay=0)

    lose(queue, task_id)

    task = queue.read(task_id)
    assert (task.next_retry_at, task.retry_count, task.lost_count, task.attempts) == (None, 2, 1, 2)


def test_a_task_that_kills_its_workers_is_buried_when_no_attempt_is_left(queue: Face):
    task_id = queue.enqueue("job", max_retries=2)
    for _ in range(3):
        lose(queue, task_id)
        queue.advance(3600)

    task = queue.read(task_id)
    assert (task.state, task.attempts, task.retry_count, task.lost_count) == (TaskState.BURIED, 3, 2, 3)
    assert (task.next_retry_at, task.worker_id, task.locked_until) == (None, None, None)
    assert task.completed_at == queue.now - timedelta(hours=1)
    assert [attempt.outcome for attempt in task.history] == ["lost"] * 3


def test_the_error_names_worker_host_and_last_heartbeat(queue: Face):
    task_id = queue.enqueue("job", max_retries=0)

    lose(queue, task_id, worker_id="crawler-3", host="node-9", pid=1234)

    error = queue.read(task_id).error
    assert error.startswith("WorkerLost: worker crawler-3 on node-9 (pid 1234) last answered at ")
    assert f"{NOON:%Y-%m-%dT%H:%M:%S}.000Z" in error
    assert "attempt 1" in error


def test_the_record_keeps_the_lost_attempt(queue: Face):
    task_id = queue.enqueue("job")

    lose(queue, task_id, worker_id="crawler-3")

    task = queue.read(task_id)
    (attempt,) = task.history
    assert (attempt.number, attempt.worker_id, attempt.outcome) == (1, "crawler-3", "lost")
    assert (attempt.started_at, attempt.ended_at, attempt.error) == (NOON, queue.now, task.error)


def test_the_record_of_losses_is_bounded_too(queue: Face):
    task_id = queue.enqueue("job", max_retries=100)
    for _ in range(23):
        lose(queue, task_id)
        queue.advance(6 * 3600)

    assert [attempt.number for attempt in queue.read(task_id).history] == list(range(4, 24))


def test_the_last_worker_is_the_finisher_of_a_buried_task(queue: Face):
    task_id = queue.enqueue("job", max_retries=0)

    lose(queue, task_id, worker_id="crawler-3")

    (row,) = queue.sql(f"SELECT finished_by FROM tasks WHERE id = '{task_id}'")
    assert row["finished_by"] == "crawler-3"


@pytest.mark.parametrize("max_retries", [0, 3])
def test_with_a_cancel_request_it_is_cancelled(queue: Face, max_retries: int):
    task_id = queue.enqueue("job", max_retries=max_retries)
    worker = queue.worker(timeout_seconds=0.001)
    worker.take(task_id)
    queue.cancel(task_id)
    queue.advance(0.01)

    assert queue.recover() == 1

    task = queue.read(task_id)
    assert (task.state, task.completed_at, task.retry_count) == (TaskState.CANCELLED, queue.now, 0)
    assert "WorkerLost" in task.error


def test_success_after_a_loss_clears_the_error(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    lose(queue, task_id)

    assert worker.complete(worker.take(task_id))

    task = queue.read(task_id)
    assert (task.state, task.error, task.attempts) == (TaskState.COMPLETED, None, 2)
    assert [attempt.outcome for attempt in task.history] == ["lost", "completed"]


def test_a_buried_task_that_is_retried_is_no_suspect_any_more(queue: Face):
    task_id = queue.enqueue("job", max_retries=0)
    lose(queue, task_id)
    queue.retry(task_id)

    assert (queue.read(task_id).lost_count, queue.read(task_id).attempts) == (0, 0)


def test_a_sign_of_life_after_the_look_keeps_the_task(queue: Face):
    """However late the recovery is done that a look led to, a heartbeat or a renewal in between counts."""
    beating, renewing = queue.worker(), queue.worker()
    ids = [queue.enqueue("job"), queue.enqueue("job")]
    beating.take(ids[0])
    renewed = renewing.take(ids[1], lease=60)
    queue.advance(61)
    renewing.beat()
    silent = [s for s in queue.do(lambda: workers.look_for_silent(lease_patience=0)) if s.is_overdue]
    assert {s.key for s in silent} == {str(beating.instance), str(ids[1])}

    queue.advance(61)
    beating.beat()
    renewing.renew(renewed)

    recovery = queue.do(lambda: workers.recover_silent(silent, queue.plain.config.backoff))
    assert recovery.tasks == 0
    assert {queue.read(task_id).state for task_id in ids} == {"running"}
    assert beating.beat()


def test_a_running_row_that_nobody_holds_is_found_by_the_thorough_sweep(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    worker.take(task_id)
    worker.forget()  # as if the note of what it held were lost

    assert queue.recover() == 0
    assert queue.recover_stale_tasks() == 1

    task = queue.read(task_id)
    assert (task.state, task.retry_count) == (TaskState.PENDING, 1)
    assert f"worker {worker.worker_id} is gone" in task.error


def test_an_orphan_is_found_once_its_lease_has_passed(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    worker.take(task_id, lease=60)
    worker.forget()

    assert queue.look_for_orphans().tasks == 0
    queue.advance(60.01)
    assert queue.look_for_orphans().tasks == 1
    assert queue.read(task_id).state == TaskState.PENDING


def test_orphans_are_looked_for_part_by_part_from_the_newest_on(
    queue: Face, worker: Instance, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(workers, "ORPHAN_ROWS", 2)
    ids = [queue.enqueue("job") for _ in range(5)]
    for task_id in ids:
        worker.take(task_id, lease=60)
    worker.forget()
    queue.advance(60.01)

    first = queue.look_for_orphans()
    assert [queue.read(task_id).state for task_id in ids] == ["running"] * 3 + ["pending"] * 2
    second = queue.look_for_orphans(before=first.before)
    third = queue.look_for_orphans(before=second.before)
    assert (first.tasks, second.tasks, third.tasks, third.before) == (2, 2, 1, None)


def test_the_thorough_sweep_takes_nothing_that_is_held(queue: Face, worker: Instance):
    for _ in range(3):
        queue.enqueue("job")
    worker.claim(2)
    worker.claim(1)

    assert queue.recover_stale_tasks() == 0
    assert queue.count(state="running") == 3


def test_recovering_nothing_says_so(queue: Face):
    assert (queue.recover(), queue.recover_stale_tasks(), queue.look_for_orphans().tasks) == (0, 0, 0)
