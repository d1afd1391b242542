"""Submitting many: in order, in few statements, from anything that yields."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from uuid_utils.compat import uuid7

from tasklib import ConfigurationError, InvalidArguments
from tasklib.core.task import NewTask, TaskBatch, first_of_many
from tasklib.storage.statement import Statement
from tasklib.submission import CHUNK, TaskFunction
from tests.fixtures.queues import Face


@pytest.fixture
def count(queue: Face) -> TaskFunction[Any, Any]:
    @queue.plain.task(name="count")
    def count(n: int) -> int:
        return n

    return count


def test_one_task_per_mapping_in_the_order_given(queue: Face, count: TaskFunction[Any, Any]):
    ids = queue.via(count).submit_many([{"n": n} for n in range(5)])

    assert [queue.read(each).kwargs["n"] for each in ids] == [0, 1, 2, 3, 4]
    assert [task.kwargs["n"] for task in queue.list()] == [4, 3, 2, 1, 0]
    assert (len(ids), ids.created) == (5, 5)


def test_a_generator_is_read_as_it_goes(queue: Face, count: TaskFunction[Any, Any]):
    stored_when_asked: list[int] = []

    def rows() -> Iterator[dict[str, int]]:
        for n in range(CHUNK * 2 + 1):
            if n % CHUNK == 0:
                stored_when_asked.append(_stored(queue))
            yield {"n": n}

    ids = queue.via(count).submit_many(rows())

    # The awaiting form makes rows ready while those before are on their way.
    assert all(CHUNK * (k - 1) <= stored <= CHUNK * k for k, stored in enumerate(stored_when_asked))
    assert len(ids) == len(set(ids)) == CHUNK * 2 + 1


def test_a_chunk_is_one_statement(queue: Face, count: TaskFunction[Any, Any], monkeypatch: pytest.MonkeyPatch):
    sent: list[str] = []

    def statement(name: str, *params: Any) -> Statement:
        sent.append(name)
        return Statement(name, *params)

    monkeypatch.setattr("tasklib.storage.operations.tasks.Statement", statement)

    queue.via(count).submit_many([{"n": n} for n in range(CHUNK)])

    assert sent == ["insert_batch"]


def test_nothing_to_submit_submits_nothing(queue: Face, count: TaskFunction[Any, Any]):
    ids = queue.via(count).submit_many([])

    assert (list(ids), ids.created, queue.count()) == ([], 0, 0)


def test_one_id_for_many_is_refused(queue: Face, count: TaskFunction[Any, Any]):
    with pytest.raises(ConfigurationError, match="makes an id for each"):
        count.options(id=uuid7()).submit_many([{"n": 1}, {"n": 2}])
    assert queue.count() == 0


def test_ids_need_not_be_kept(queue: Face, count: TaskFunction[Any, Any]):
    ids = queue.via(count).submit_many(({"n": n} for n in range(3)), keep_ids=False)

    assert (list(ids), ids.created, queue.count()) == ([], 3, 3)


def test_a_row_that_does_not_fit_stores_nothing_of_its_chunk(queue: Face, count: TaskFunction[Any, Any]):
    with pytest.raises(InvalidArguments):
        queue.via(count).submit_many([{"n": 1}, {"n": "many"}])
    assert queue.count() == 0


def test_what_is_not_a_mapping_is_refused(queue: Face, count: TaskFunction[Any, Any]):
    with pytest.raises(InvalidArguments, match="mapping"):
        queue.via(count).submit_many([1])
    assert queue.count() == 0


@pytest.mark.backends("sqlite-memory")  # refused before any database is asked
def test_what_cannot_be_iterated_is_refused(queue: Face, count: TaskFunction[Any, Any]):
    async def later() -> AsyncIterator[dict[str, Any]]:
        yield {"n": 1}

    with pytest.raises(ConfigurationError, match="mappings of arguments, one a task, got None"):
        count.submit_many(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"await asubmit_many\(\.\.\.\)"):
        count.submit_many(later())  # type: ignore[arg-type]


def test_options_hold_for_every_row(queue: Face, count: TaskFunction[Any, Any]):
    queue.via(count.options(priority=4, delay_seconds=60)).submit_many({"n": n} for n in range(3))

    assert {(task.priority, (task.due_at - queue.now).total_seconds()) for task in queue.list()} == {(4, 60)}


@pytest.mark.parametrize("form", ["awaiting"], indirect=True)
def test_an_asynchronous_generator_is_read_too(queue: Face, count: TaskFunction[Any, Any]):
    async def rows() -> AsyncIterator[dict[str, int]]:
        for n in range(3):
            yield {"n": n}

    assert len(queue.via(count).submit_many(rows())) == 3
    assert queue.count() == 3


def test_rows_with_one_unique_key_become_one_task(queue: Face, count: TaskFunction[Any, Any]):
    ids = queue.via(count.options(unique_key="only")).submit_many({"n": n} for n in range(3))

    assert (len(ids), len(set(ids)), ids.created) == (3, 1, 1)
    assert [task.kwargs for task in queue.list()] == [{"n": 0}]


def test_a_batch_sent_again_after_a_lost_reply_is_stored_once(queue: Face):
    like = NewTask(id=first_of_many(uuid7()), name="count", kwargs=None, max_retries=3)
    batch = TaskBatch(like, '[{"n": 0}, {"n": 1}]', 2)

    queue.plain.submit_new(batch)
    ids = queue.plain.submit_new(TaskBatch(like, '[{"n": 0}, {"n": 1}, {"n": 2}]', 3))

    assert [queue.read(each).kwargs["n"] for each in ids] == [0, 1, 2]
    assert (ids[0], queue.count()) == (like.id, 3)


def test_the_ids_of_a_batch_are_uuids_of_version_7_that_count_up(queue: Face, count: TaskFunction[Any, Any]):
    ids = queue.via(count).submit_many([{"n": n} for n in range(300)])

    assert {each.version for each in ids} == {7}
    assert [each.int - ids[0].int for each in ids] == list(range(300))


def _stored(queue: Face) -> int:
    """The rows committed so far, seen from beside: the test's event loop may be busy with the submission."""
    return queue.sql("SELECT count(*) AS count FROM tasks")[0]["count"]
