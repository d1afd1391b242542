"""A write of an attempt that is no longer current is refused and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tasklib.core.lifecycle import Ending
from tasklib.storage.operations import attempts
from tasklib.storage.rows import ClaimedTask
from tests.fixtures.queues import Face, Instance

WRITES: dict[str, Callable[[Instance, ClaimedTask], bool]] = {
    "complete": lambda worker, task: worker.complete(task, "late"),
    "retry_later": lambda worker, task: worker.fail(task),
    "give_up": lambda worker, task: worker.give_up(task),
    "snooze": lambda worker, task: worker.snooze(task),
    "release": lambda worker, task: worker.release(task),
    "cancel": lambda worker, task: worker.cancelled(task),
    "renew": lambda worker, task: task.id not in worker.renew(task)[0],
    "look": lambda worker, task: task.id not in worker.look(task)[0],
    "progress": lambda worker, task: bool(worker.report(task, 0.5, "late")),
    "log": lambda worker, task: bool(worker.log(task, "late")),
}
"""Each write of an attempt; False if it was refused (progress and log say nothing: they are only not kept)."""


def recovered(queue: Face, late: Instance, task: ClaimedTask) -> None:
    """Its worker was declared dead, and nobody has claimed it since."""
    queue.advance(late.timeout_seconds + 1)
    assert queue.recover() == 1


def claimed_anew(queue: Face, late: Instance, task: ClaimedTask) -> None:
    """Another worker runs it already."""
    recovered(queue, late, task)
    queue.worker().take(task.id)


def finished(queue: Face, late: Instance, task: ClaimedTask) -> None:
    """Another attempt has ended."""
    recovered(queue, late, task)
    other = queue.worker()
    other.complete(other.take(task.id))


def started_over(queue: Face, late: Instance, task: ClaimedTask) -> None:
    """A person retried it after another attempt ended, and it runs again: attempts repeat, versions never do."""
    finished(queue, late, task)
    queue.retry(task.id)
    queue.worker().take(task.id)
    assert queue.read(task.id).attempts == task.attempts


def deleted(queue: Face, late: Instance, task: ClaimedTask) -> None:
    """Its row is gone."""
    finished(queue, late, task)
    queue.delete(task.id)


def used_again(queue: Face, late: Instance, task: ClaimedTask) -> None:
    """Its row is gone, and another task has its id and runs."""
    deleted(queue, late, task)
    queue.sql(f"INSERT INTO tasks (id, name) VALUES ('{task.id}', 'job')")
    queue.worker().take(task.id)


@pytest.mark.parametrize("happened", [recovered, claimed_anew, finished, started_over, deleted, used_again])
def test_no_late_write_is_accepted(queue: Face, worker: Instance, happened: Callable[..., None]):
    queue.enqueue("job")
    late = worker.take()
    happened(queue, worker, late)
    before = queue.bytes_of(late.id)

    assert {name: write(worker, late) for name, write in WRITES.items()} == dict.fromkeys(WRITES, False)

    assert queue.bytes_of(late.id) == before


def test_a_version_never_seen_is_refused(queue: Face, worker: Instance):
    queue.enqueue("job")
    task = worker.take()
    before = queue.bytes_of(task.id)
    task.version += 1

    assert not any(write(worker, task) for write in WRITES.values())
    assert queue.bytes_of(task.id) == before


def test_an_ending_said_twice_counts_once(queue: Face, worker: Instance):
    queue.enqueue("job")
    task = worker.take()
    assert worker.complete(task, "first")
    before = queue.bytes_of(task.id)

    assert not worker.complete(task, "second")
    assert not worker.fail(task)
    assert queue.bytes_of(task.id) == before


def test_in_a_batch_only_the_stale_ones_are_refused(queue: Face, worker: Instance):
    ids = [queue.enqueue("job") for _ in range(3)]
    tasks = worker.claim(3).tasks
    worker.complete(tasks[1])

    endings = [Ending.give_up(task.id, task.version, error="E: e") for task in tasks]
    refused = queue.do(lambda: attempts.end_attempts(endings))

    assert refused == {tasks[1].id}
    assert [queue.read(each).state.value for each in ids] == ["failed", "completed", "failed"]


def test_a_paused_worker_that_wakes_up_finds_itself_fenced(queue: Face, worker: Instance):
    queue.enqueue("job")
    late = worker.take()
    claimed_anew(queue, worker, late)

    assert worker.beat() is False
    claimed = worker.claim()
    assert (claimed.tasks, claimed.registered) == ([], False)
    assert worker.holds() == []


@pytest.mark.parametrize("version", [2**52 - 2, 2**52, 2**53 - 2, 2**53 - 1, 2**63 - 1])
def test_no_version_is_given_twice_whatever_a_row_by_hand_begins_with(queue: Face, version: int) -> None:
    queue.sql(f"INSERT INTO tasks (name, version, max_retries) VALUES ('job', {version}, 9)")
    worker, given = queue.worker(), [version]
    for _ in range(5):
        task = worker.take()
        assert task.version not in given
        assert task.version < 2**53
        for late in given:  # none of the earlier ones is the current one
            assert not worker.end(Ending.give_up(task.id, late, error="late"))
        given.append(task.version)
        assert worker.fail(task, delay=0)
    assert queue.list()[0].result is None
