"""States asked for together are a union, also where `delayed` and `retrying` are parts of a stored state."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tasklib import ConfigurationError, Retry, TaskQueue


@pytest.fixture
def queue(database_url: str) -> Iterator[TaskQueue]:
    """One task due, one delayed, one retrying, one completed, each named by where it stands."""
    with TaskQueue(database_url) as queue:

        def fail(payload: object) -> None:
            raise Retry(delay=1000)

        queue.register_handler("retrying", fail)
        queue.register_handler("completed", lambda payload: None)
        queue.enqueue("retrying")
        queue.enqueue("completed")
        queue.process_batch()
        queue.enqueue("due")
        queue.enqueue("delayed", delay_seconds=1000)
        yield queue


@pytest.mark.parametrize(
    "states,names",
    [
        (["pending", "retrying"], {"due", "delayed", "retrying"}),
        (["delayed", "retrying"], {"delayed", "retrying"}),
        (["delayed", "completed"], {"delayed", "completed"}),
        (["delayed", "pending"], {"due", "delayed"}),
        (["retrying", "failed"], {"retrying"}),
        (["retrying"], {"retrying"}),
        (["delayed"], {"delayed"}),
    ],
)
def test_states_are_a_union(queue: TaskQueue, states: list[str], names: set[str]) -> None:
    assert {task.name for task in queue.list(state=states)} == names
    assert queue.count(state=states) == len(names)


def test_no_states_are_refused_and_stand_neither_for_all_nor_for_none(queue: TaskQueue) -> None:
    none: list[str] = []
    for call in (queue.list, queue.count, queue.cancel_many, queue.retry_many, queue.delete_many):
        with pytest.raises(ConfigurationError, match="leave it out"):
            call(state=none)
    with pytest.raises(ConfigurationError, match="leave it out"):
        queue.cleanup(older_than=0, state=none)
    assert queue.cancel_many(ids=[]) == 0
    assert queue.count() == queue.count(state=None) == 4


def test_cancelling_all_reaches_every_live_task(queue: TaskQueue) -> None:
    assert queue.cancel_many(dry_run=True) == 3
    assert queue.cancel_many() == 3
    assert queue.count(state="cancelled") == 3
