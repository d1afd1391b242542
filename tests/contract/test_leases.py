"""While an attempt runs: its lease moves forward, and its progress can be seen."""

from __future__ import annotations

from datetime import timedelta

from tasklib import TaskState
from tests.fixtures.queues import Face, Instance


def test_renewing_moves_the_lease_forward_from_now(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    task = worker.take(task_id, lease=60)
    queue.advance(50)

    assert worker.renew(task, lease=60) == (set(), set())

    assert queue.read(task_id).locked_until == queue.now + timedelta(seconds=60)


def test_renewing_many_tells_which_are_lost(queue: Face, worker: Instance):
    for _ in range(3):
        queue.enqueue("job")
    one, two, three = worker.claim(3).tasks
    worker.complete(two)

    assert worker.renew(one, two, three) == ({two.id}, set())


def test_renewing_tells_which_shall_be_cancelled_and_renews_them_too(queue: Face, worker: Instance):
    for _ in range(2):
        queue.enqueue("job")
    one, two = worker.claim(2).tasks
    queue.cancel(one.id)
    queue.advance(1)

    assert worker.renew(one, two) == (set(), {one.id})
    assert queue.read(one.id).locked_until == queue.read(two.id).locked_until


def test_renewing_nothing_does_nothing(worker: Instance):
    assert worker.renew() == (set(), set())


def test_looking_for_cancel_requests_changes_nothing(queue: Face, worker: Instance):
    for _ in range(3):
        queue.enqueue("job")
    one, two, three = worker.claim(3).tasks
    queue.cancel(one.id)
    worker.complete(two)
    before = queue.bytes_of(one.id)

    assert worker.look(one, two, three) == ({two.id}, {one.id})
    assert queue.bytes_of(one.id) == before


def test_a_lease_that_has_passed_is_recovered_though_its_worker_lives(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    worker.take(task_id, lease=60)
    queue.advance(60.001)
    worker.beat()

    assert queue.recover() == 1

    assert queue.read(task_id).state == TaskState.PENDING
    assert [info.instance for info in queue.workers()] == [worker.instance]


def test_a_renewed_lease_is_not_recovered(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    task = worker.take(task_id, lease=60)
    for _ in range(5):
        queue.advance(25)
        worker.beat()
        worker.renew(task, lease=60)

    assert (queue.recover(), queue.recover_stale_tasks()) == (0, 0)
    assert queue.read(task_id).state == TaskState.RUNNING


def test_progress_is_kept_with_its_message(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    task = worker.take(task_id)
    queue.advance(1)

    worker.report(task, 0.25, "resizing")

    read = queue.read(task_id)
    assert (read.progress, read.progress_message, read.updated_at) == (0.25, "resizing", queue.now)
    assert (read.state, read.version) == (TaskState.RUNNING, 1)


def test_the_latest_progress_wins(queue: Face, worker: Instance):
    task = queue.enqueue("job") and worker.take()
    worker.report(task, 0.25, "first")
    worker.report(task, 0.5)

    read = queue.read(task.id)
    assert (read.progress, read.progress_message) == (0.5, None)


def test_a_completed_task_shows_how_far_it_said_it_was(queue: Face, worker: Instance):
    task = queue.enqueue("job") and worker.take()
    worker.report(task, 0.9)
    worker.complete(task)

    assert queue.read(task.id).progress == 0.9


def test_a_retry_starts_without_the_progress_of_the_attempt_before(queue: Face, worker: Instance):
    task = queue.enqueue("job") and worker.take()
    worker.report(task, 0.9, "almost")
    worker.fail(task)

    read = queue.read(task.id)
    assert (read.progress, read.progress_message) == (None, None)


def test_a_lost_task_starts_without_the_progress_of_the_attempt_before(queue: Face, worker: Instance):
    task = queue.enqueue("job") and worker.take()
    worker.report(task, 0.9, "almost")
    queue.advance(worker.timeout_seconds + 1)
    queue.recover()

    read = queue.read(task.id)
    assert (read.progress, read.progress_message) == (None, None)
