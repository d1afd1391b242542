"""The database itself refuses rows that must never be, whoever writes them."""

from __future__ import annotations

import random
import sqlite3
from string import ascii_letters, digits

import psycopg
import pytest

from tasklib import TaskContext
from tasklib.core.lifecycle import Phase
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
        "max_retries = -2",
        "lost_count = -1",
        "timeout_seconds = 0",
        "timeout_seconds = -5",
        "timeout_seconds = 1e9",
        "attempts = 2147483647",
        "lost_count = 2147483647",
        "tags = '[]'",
        "tags = '3'",
        "headers = '\"text\"'",
        f"fingerprint = '{'f' * 5000}'",
        f"name = '{'é' * 511}'",
        f"unique_key = '{'u' * 1501}'",
        f"concurrency_key = '{'é' * 751}'",
        "scheduled_at = '9999-12-31 12:00:00'",
        "created_at = '0001-01-01 00:00:00'",
        "expires_at = '9999-12-31 00:00:00.5'",
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
        f"unique_key = '{'u' * 1501}'",
        f"concurrency_key = '{'c' * 1501}'",
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


FOREIGN = {
    "postgres": [
        *(f"{column} = '{moment}'" for column in ("scheduled_at", "created_at", "updated_at", "expires_at")
          for moment in ("infinity", "-infinity", "0044-03-15 12:00:00 BC", "12000-01-01")),
        "cancel_requested_at = 'infinity'",
        "timeout_seconds = 'NaN'",
        "timeout_seconds = 'Infinity'",
        "progress = 'NaN'",
    ],
    "sqlite": [
        *(f"{column} = '{moment}'" for column in ("scheduled_at", "created_at", "expires_at")
          for moment in ("infinity", "", "now", "2024-02-31 00:00:00", "2024-01-01T00:00:00", "2024-01-01 00:00:00 x",
                         "2024-01-01 25:00:00", "2024-01-01 00:00:00.", "2024-01-01")),
        "timeout_seconds = 'abc'",
        "timeout_seconds = 9e999",
        "priority = 'high'",
        "priority = 4294967296",
        "id = x'00'",
        "id = 'abc'",
        "id = '018F2D3B-0000-7000-8000-000000000000'",
        "name = x'ff'",
        "kwargs = x'ff'",
        "error = x'ff'",
        "concurrency_key = 'a' || char(0)",
        "unique_key = 'a' || char(0)",
    ],
}  # fmt: skip
"""What only one of them could hold at all."""


def test_values_of_another_kind_are_refused(queue: Face):
    task = queue.task_in(Phase.PENDING)
    before = queue.bytes_of(task.id)

    for change in FOREIGN["sqlite" if queue.is_sqlite else "postgres"]:
        with pytest.raises((psycopg.Error, sqlite3.Error)):
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


def test_the_longest_keys_that_are_taken_can_be_retried(queue: Face):
    """Also where only the index of what lives holds them, and where nothing can be compressed."""
    drawn = random.Random(7)
    name, unique, key = ("".join(drawn.choices(ascii_letters + digits, k=length)) for length in (1020, 1500, 1500))
    for state in ("completed", "failed", "buried"):
        queue.sql(
            "INSERT INTO tasks (name, state, completed_at, unique_key, concurrency_key) VALUES "
            f"('{name}', '{state}', {MOMENT}, '{state}{unique[len(state) :]}', '{key}')"
        )
    with pytest.raises((psycopg.IntegrityError, sqlite3.IntegrityError), match="tasks_keys_short"):
        queue.sql(f"UPDATE tasks SET unique_key = '{unique}x'")

    completed = queue.list(state="completed")[0]
    assert queue.retry(completed.id).state == "pending"
    assert queue.retry_many(state=["failed", "buried"]) == 2
    assert queue.count(state="pending") == 3


BEYOND = "'9999-12-31 12:00:00'"
SIDE_ROWS = {
    "tasklib_steps": ["ask = '{}'", "ask = '\"q\"'", "error = '[]'", f"until = {BEYOND}", f"started_at = {BEYOND}"],
    "tasklib_workers": ["names = '5'", "info = '[]'", f"heartbeat_at = {BEYOND}", f"started_at = {BEYOND}"],
    "tasklib_controls": ["rate = 9e999", "burst = 9e999", "rate = 'NaN'", "declared = '5'", f"paused_at = {BEYOND}"],
    "tasklib_budgets": ["rate = 9e999", "burst = 9e999", "rate = 'NaN'"],
}


def test_side_tables_refuse_what_can_never_be_right(queue: Face):
    @queue.task
    def asking(ctx: TaskContext) -> None:
        ctx.wait("approval", bool, ask="Go on?")

    asking.submit()
    queue.process_batch()
    queue.worker()
    queue.set_rate_limit(5)
    queue.set_budget("tokens", per_second=5)

    for table, changes in SIDE_ROWS.items():
        for change in changes:
            portable = change if queue.is_sqlite else change.replace("9e999", "'Infinity'")
            with pytest.raises((psycopg.Error, sqlite3.Error)):
                queue.sql(f"UPDATE {table} SET {portable}")
