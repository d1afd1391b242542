"""The database itself refuses rows that must never be, whoever writes them."""

from __future__ import annotations

import sqlite3

import psycopg
import pytest

from tasklib.lifecycle import Phase
from tests.fixtures.queues import Face

pytestmark = pytest.mark.parametrize("form", ["blocking"], indirect=True)  # the table is the same in both forms
MOMENT = "'2030-01-01 12:00:00'"
IMPOSSIBLE: dict[Phase, list[str]] = {
    Phase.PENDING: [
        "state = 'sleeping'",
        "state = ''",
        "state = NULL",
        "name = ''",
        "name = NULL",
        f"completed_at = {MOMENT}",
        "state = 'running'",
        "state = 'completed'",
        "state = 'failed'",
        "state = 'cancelled'",
        "state = 'buried'",
        "result = '{\"value\": 1}'",
        "version = -1",
        "attempts = -1",
        "retry_count = -1",
        "max_retries = -1",
        "lost_count = -1",
        "timeout_seconds = 0",
        "timeout_seconds = -5",
        "progress = 1.5",
        "progress = -0.1",
        "scheduled_at = NULL",
        "kwargs = NULL",
        "priority = NULL",
    ],
    Phase.RUNNING: [
        "locked_until = NULL",
        f"next_retry_at = {MOMENT}",
        f"completed_at = {MOMENT}",
        "result = '{\"value\": 1}'",
    ],
    Phase.COMPLETED: [
        "completed_at = NULL",
        f"next_retry_at = {MOMENT}",
        "state = 'pending'",
        "state = 'failed'",  # a result belongs to success
        f"state = 'running', locked_until = {MOMENT}",
    ],
    Phase.RETRYING: [f"completed_at = {MOMENT}", "next_retry_at = NULL"],
    Phase.FAILED: [f"next_retry_at = {MOMENT}", "completed_at = NULL", "state = 'pending'"],
    Phase.CANCELLED: ["completed_at = NULL", f"next_retry_at = {MOMENT}", "state = 'pending'"],
    Phase.BURIED: ["completed_at = NULL", f"next_retry_at = {MOMENT}"],
}


@pytest.mark.parametrize("phase", Phase)
def test_an_impossible_row_is_refused(queue: Face, phase: Phase):
    task = queue.task_in(phase)
    before = queue.bytes_of(task.id)

    for change in IMPOSSIBLE[phase]:
        with pytest.raises((psycopg.IntegrityError, sqlite3.IntegrityError)):
            queue.sql(f"UPDATE tasks SET {change} WHERE id = '{task.id}'")
        assert queue.bytes_of(task.id) == before, change


def test_two_live_tasks_never_share_a_key(queue: Face):
    queue.enqueue("job", unique_key="k")

    with pytest.raises((psycopg.IntegrityError, sqlite3.IntegrityError)):
        queue.sql("INSERT INTO tasks (name, unique_key) VALUES ('job', 'k')")
    queue.sql("INSERT INTO tasks (name, unique_key) VALUES ('other', 'k')")
    assert queue.count() == 2


def test_two_tasks_never_share_an_id(queue: Face):
    task_id = queue.enqueue("job")

    with pytest.raises((psycopg.IntegrityError, sqlite3.IntegrityError)):
        queue.sql(f"INSERT INTO tasks (name, id) VALUES ('job', '{task_id}')")
    assert queue.count() == 1
