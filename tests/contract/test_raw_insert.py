"""Any program may submit with a two-column INSERT: every other column has a default that works."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from tasklib import TaskState
from tests.fixtures.queues import Face

INSERT = """
INSERT INTO tasks (name, kwargs)
VALUES ('webhook.outbound', '{"url": "https://example.com", "method": "POST"}')
"""


def inserted(queue: Face) -> UUID:
    queue.sql(INSERT)
    (task,) = queue.list()
    return task.id


def test_two_columns_are_a_complete_submission(queue: Face):
    task = queue.read(inserted(queue))

    assert (task.name, task.state) == ("webhook.outbound", TaskState.PENDING)
    assert task.kwargs == {"url": "https://example.com", "method": "POST"}
    assert (task.args, task.tags, task.headers, task.priority, task.version) == ({}, {}, {}, 0, 0)
    assert (task.attempts, task.retry_count, task.max_retries, task.lost_count) == (0, 0, 3, 0)
    assert (task.completed_at, task.next_retry_at, task.unique_key, task.error, task.result) == (None,) * 5


def test_its_times_are_the_databases_own(queue: Face):
    task = queue.read(inserted(queue))

    (clock,) = queue.sql(
        "SELECT strftime('%s', 'now') AS now" if queue.is_sqlite else "SELECT extract(epoch FROM now())::float8 AS now"
    )
    assert task.created_at == task.scheduled_at == task.updated_at
    assert abs(float(clock["now"]) - task.created_at.timestamp()) < 60
    assert task.created_at.utcoffset() == timedelta(0)


def test_each_row_gets_an_id_of_its_own(queue: Face):
    for _ in range(3):
        queue.sql(INSERT)

    ids = {task.id for task in queue.list()}
    assert len(ids) == 3
    assert {(each.version, each.variant) for each in ids} == {(4, "specified in RFC 4122")}


def test_it_is_claimed_and_ends_like_any_other(queue: Face):
    worker = queue.worker("webhook.outbound")
    task_id = inserted(queue)

    claimed = worker.take(task_id)
    assert claimed.kwargs == {"url": "https://example.com", "method": "POST"}
    assert worker.fail(claimed)
    queue.advance(5)
    assert worker.complete(worker.take(task_id), "ok")
    assert queue.read(task_id).result == {"value": "ok"}


def test_many_rows_in_one_statement_keep_their_order(queue: Face):
    queue.sql("INSERT INTO tasks (name, kwargs) VALUES ('a', '1'), ('b', '2'), ('a', '3')")

    assert [task.kwargs for task in reversed(queue.list())] == [1, 2, 3]


def test_text_that_is_not_json_is_refused(queue: Face):
    for column in ("kwargs", "tags", "args", "headers"):
        with pytest.raises(Exception, match=r"(?i)json"):
            queue.sql(f"INSERT INTO tasks (name, {column}) VALUES ('job', 'not json')")
    assert queue.count() == 0


def test_times_written_by_hand_are_read_back(queue: Face):
    queue.sql("INSERT INTO tasks (name, scheduled_at) VALUES ('job', '2031-02-03 04:05:06.789000')")

    assert queue.list()[0].scheduled_at.isoformat() == "2031-02-03T04:05:06.789000+00:00"
