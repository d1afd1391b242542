"""Instances that are known to be gone: what they held is taken back at once, once, and completely."""

from __future__ import annotations

import threading
from datetime import timedelta

import psycopg
import pytest
from psycopg.rows import dict_row

from tasklib import TaskState
from tasklib.storage.operations import claims, workers
from tasklib.storage.operations.claims import Position
from tests.fixtures.backends import libpq_url
from tests.fixtures.queues import Face, Instance
from tests.fixtures.waiting import eventually


def recover_from(queue: Face, gone: Instance) -> int:
    return queue.do(lambda: workers.recover_from(gone.instance, queue.plain.config.backoff))


def release_held(queue: Face, gone: Instance) -> int:
    return queue.do(lambda: workers.release_held(gone.instance))


def test_recovering_from_one_instance_does_not_wait_for_its_heartbeat(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    worker.take(task_id)

    assert recover_from(queue, worker) == 1

    task = queue.read(task_id)
    assert (task.state, task.retry_count, task.lost_count) == (TaskState.PENDING, 1, 1)
    assert task.error is not None
    assert task.error.startswith("WorkerLost")
    assert not worker.beat()


def test_recovering_from_one_instance_leaves_the_others_alone(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    worker.take(task_id)
    other = queue.worker()

    assert recover_from(queue, other) == 0

    assert queue.read(task_id).state is TaskState.RUNNING
    assert worker.beat()


def test_what_was_held_and_not_running_loses_no_attempt(queue: Face, worker: Instance):
    ids = [queue.enqueue("job") for _ in range(3)]
    suspect, *_ = worker.claim(3).tasks
    backoff = queue.plain.config.backoff

    taken = queue.do(lambda: workers.recover_from(worker.instance, backoff, suspects={suspect.seq}))

    assert taken == 3
    tasks = [queue.read(task_id) for task_id in ids]
    assert {task.state for task in tasks} == {TaskState.PENDING}
    assert [(task.attempts, task.retry_count, task.lost_count) for task in tasks] == [(1, 1, 1), (0, 0, 0), (0, 0, 0)]


def test_releasing_what_an_instance_holds_spends_no_attempt(queue: Face, worker: Instance):
    ids = [queue.enqueue("job") for _ in range(3)]
    one, *_ = worker.claim(3).tasks
    worker.complete(one)

    assert release_held(queue, worker) == 2

    for task_id in ids[1:]:
        task = queue.read(task_id)
        assert (task.state, task.attempts, task.retry_count, task.lost_count) == (TaskState.PENDING, 0, 0, 0)
    assert not worker.beat()


def test_an_instance_that_was_released_claims_no_more_and_writes_nothing(queue: Face, worker: Instance):
    task_id = queue.enqueue("job")
    task = worker.take(task_id)
    release_held(queue, worker)

    assert not worker.complete(task)
    assert not worker.claim(1).registered
    assert queue.read(task_id).state is TaskState.PENDING


def test_leases_can_be_renewed_in_the_place_of_their_holder(queue: Face, worker: Instance):
    ids = [queue.enqueue("job") for _ in range(3)]
    one, *_ = worker.claim(3, lease=60).tasks
    worker.complete(one)
    queue.advance(50)

    assert queue.do(lambda: workers.renew_held(worker.instance, 60)) == 2

    assert {queue.read(i).locked_until for i in ids[1:]} == {queue.now + timedelta(seconds=60)}
    assert queue.read(ids[0]).locked_until is None


def test_a_claim_that_was_given_up_takes_nothing_however_late_it_comes(queue: Face, worker: Instance):
    taken, waiting = queue.enqueue("job"), queue.enqueue("job")
    stray = worker.take(taken)

    strays = queue.do(lambda: workers.find_strays(worker.instance, set()))

    assert strays.tasks == [(str(taken), stray.version)]
    for _ in range(3):  # in every form of the claim
        assert worker.claim(after=[Position("job", 0, "2020-01-01", 0)]).tasks == []
        assert worker.claim().tasks == []
    worker.generation = strays.generation
    assert worker.claim_ids() == [waiting]
    known = {(str(taken), stray.version), (str(waiting), queue.read(waiting).version)}
    assert queue.do(lambda: workers.find_strays(worker.instance, known)).tasks == []


@pytest.mark.backends("postgres")
def test_a_claim_that_is_under_way_is_waited_for_and_taken_back_too(queue: Face, worker: Instance):
    # Its process died after the request was sent: the server finishes the claim all the same.
    task_id = queue.enqueue("job")
    dialect = queue.plain.database._ensure()  # type: ignore[attr-defined]
    claim = next(
        claims.claim_tasks(
            claims.Claim(
                instance=worker.instance,
                worker_id=worker.worker_id,
                names=["job"],
                limit=1,
                lease_seconds=60,
                held=[],
                keyed=False,
                limited=False,
            )
        )
    )
    recovered: list[int] = []
    recovery = threading.Thread(
        target=lambda: recovered.append(
            queue.plain.database.run(lambda: workers.recover_from(worker.instance, queue.plain.config.backoff))
        )
    )
    with psycopg.connect(libpq_url(queue.url), row_factory=dict_row) as server:
        server.execute(dialect.pyformat[claim.name].encode(), {**claim.params, "now": queue.now})
        recovery.start()
        waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        eventually(lambda: queue.sql(waiting))
    recovery.join()

    assert recovered == [1]
    assert queue.read(task_id).state is TaskState.PENDING
