"""Seed 001, "Final PostgreSQL Schema": the table, a record in each state, and the indexes, on every database."""

from __future__ import annotations

import threading

import pytest

import tasklib
from tasklib import Config, ManualClock, TaskQueue, TaskWorker
from tests.acceptance.seeds import statements
from tests.acceptance.seeds.examples import A_TIME, AN_ID, Some, at, define_send_email, if_running, record
from tests.acceptance.seeds.support import COMPATIBLE, SEED_COLUMNS, OpenShell, working
from tests.fixtures.waiting import PATIENCE, aeventually

NULLABLE = {"started_at", "completed_at", "result", "error", "next_retry_at", "worker_id", "locked_until"}


NULLABLE |= {"timeout_seconds"}


DEFAULTS = {"args": "{}", "tags": "{}", "retry_count": "0", "priority": "0"}


def test_block_01_table_definition(queue: TaskQueue, shell: OpenShell) -> None:
    """SQL Definition (as created): every column with its type, its nullability and its default."""
    outside = shell(queue)

    found = outside.columns()

    for column, kind in SEED_COLUMNS.items():
        actual, nullable, default = found[column]
        assert actual in COMPATIBLE[outside.dialect][kind], column
        assert nullable == (column in NULLABLE), column
        if column in DEFAULTS:
            assert default is not None
            assert DEFAULTS[column] in default, column


def test_block_01_primary_key(queue: TaskQueue, shell: OpenShell) -> None:
    """SQL Definition (as created): no two tasks have the same id."""
    outside = shell(queue)
    insert = "INSERT INTO tasks (id, name) VALUES ('550e8400-e29b-41d4-a716-446655440001', 'send_email')"
    outside.run(insert)

    with pytest.raises(Exception, match=r"(?i)unique"):
        outside.run(insert)


async def test_block_02_pending(five_o_clock: ManualClock) -> None:
    """Task 1: Pending (Waiting to Execute): these values, and a worker takes it once scheduled_at has come."""
    send_email = define_send_email()
    task_id = await tasklib.submit_task(
        send_email,
        delay_seconds=3600,
        tags={"batch": "welcome-emails", "cohort": "2025-10-25"},
        to="alice@example.com",
        subject="Welcome!",
        body="Hello Alice...",
    )

    assert record(tasklib.get_task(task_id)) == {
        "id": AN_ID,
        "name": "send_email",
        "state": "pending",
        "scheduled_at": at("18:00:00"),
        "started_at": None,
        "completed_at": None,
        "created_at": at("17:00:00"),
        "args": {},
        "kwargs": {"to": "alice@example.com", "subject": "Welcome!", "body": "Hello Alice..."},
        "result": None,
        "error": None,
        "retry_count": 0,
        "max_retries": 3,
        "next_retry_at": None,
        "worker_id": None,
        "locked_until": None,
        "timeout_seconds": 30,
        "priority": 0,
        "tags": {"batch": "welcome-emails", "cohort": "2025-10-25"},
    }
    assert await tasklib.default_queue().aprocess_batch() == 0
    five_o_clock.advance(hours=1)
    assert await tasklib.default_queue().aprocess_batch() == 1


async def test_block_03_running(five_o_clock: ManualClock, config: Config) -> None:
    """Task 2: Running (Currently Executing): a worker holds it for the next ten minutes."""
    named = config.with_(worker_id="worker-prod-01-uuid")
    tasklib.init(named)
    tasklib.default_queue().clock = five_o_clock
    proceed = threading.Event()
    send_email = define_send_email(lambda: proceed.wait(PATIENCE))
    task_id = await tasklib.submit_task(send_email, delay_seconds=3600, to="bob@example.com", subject="Hello Bob")
    five_o_clock.advance(hours=1, minutes=5, seconds=23)

    async with working(TaskWorker(named)):
        running = await aeventually(lambda: if_running(task_id))
        proceed.set()

    assert record(running) == {
        "id": AN_ID,
        "name": "send_email",
        "state": "running",
        "scheduled_at": at("18:00:00"),
        "started_at": at("18:05:23"),
        "completed_at": None,
        "created_at": at("17:00:00"),
        "args": {},
        "kwargs": {"to": "bob@example.com", "subject": "Hello Bob"},
        "result": None,
        "error": None,
        "retry_count": 0,
        "max_retries": 3,
        "next_retry_at": None,
        "worker_id": "worker-prod-01-uuid",
        "locked_until": at("18:15:23"),
        "timeout_seconds": 30,
        "priority": 0,
        "tags": {},
    }


async def test_block_04_completed(five_o_clock: ManualClock) -> None:
    """Task 3: Completed Successfully: the result is stored and the lock released."""
    send_email = define_send_email()
    task_id = await tasklib.submit_task(send_email, delay_seconds=3600, to="charlie@example.com", subject="Success!")
    five_o_clock.advance(hours=1, minutes=5, seconds=12)

    await tasklib.default_queue().aprocess_batch()

    task = tasklib.get_task(task_id)
    assert record(task) == {
        "id": AN_ID,
        "name": "send_email",
        "state": "completed",
        "scheduled_at": at("18:00:00"),
        "started_at": A_TIME,
        "completed_at": A_TIME,
        "created_at": at("17:00:00"),
        "args": {},
        "kwargs": {"to": "charlie@example.com", "subject": "Success!"},
        "result": {"value": True},
        "error": None,
        "retry_count": 0,
        "max_retries": 3,
        "next_retry_at": None,
        "worker_id": None,
        "locked_until": None,
        "timeout_seconds": 30,
        "priority": 0,
        "tags": {},
    }
    assert task is not None
    assert task.started_at is not None
    assert task.completed_at is not None
    assert task.created_at < task.started_at <= task.completed_at


class SMTPException(Exception):
    """What the seed's mail server answers."""


async def test_block_05_failed_with_a_retry(five_o_clock: ManualClock) -> None:
    """Task 4: Failed, Scheduled for Retry: five seconds later, with the traceback kept."""

    @tasklib.task(timeout_seconds=30)
    def send_email(to: str, subject: str) -> bool:
        raise SMTPException("Connection timeout")

    task_id = await tasklib.submit_task(send_email, delay_seconds=3600, to="david@example.com", subject="Newsletter")
    five_o_clock.advance(hours=1, minutes=10)

    await tasklib.default_queue().aprocess_batch()

    task = tasklib.get_task(task_id)
    assert record(task) == {
        "id": AN_ID,
        "name": "send_email",
        "state": "failed",
        "scheduled_at": at("18:00:00"),
        "started_at": A_TIME,
        "completed_at": None,
        "created_at": at("17:00:00"),
        "args": {},
        "kwargs": {"to": "david@example.com", "subject": "Newsletter"},
        "result": None,
        "error": Some(lambda text: "SMTPException: Connection timeout" in text and "in send_email" in text),
        "retry_count": 1,
        "max_retries": 3,
        "next_retry_at": at("18:10:05"),
        "worker_id": None,
        "locked_until": None,
        "timeout_seconds": 30,
        "priority": 0,
        "tags": {},
    }


async def test_block_06_failed_for_good(five_o_clock: ManualClock) -> None:
    """Task 5: Permanently Failed (Max Retries Exceeded): no retry is left, and completed_at is set."""

    @tasklib.task(timeout_seconds=30)
    def send_email(to: str, subject: str) -> bool:
        raise ValueError("Invalid email address")

    task_id = await tasklib.submit_task(send_email, delay_seconds=3600, to="invalid-email-address", subject="Test")
    five_o_clock.advance(hours=1)

    for wait in (5, 10, 20, 40):
        assert await tasklib.default_queue().aprocess_batch() == 1
        five_o_clock.advance(wait)

    assert record(tasklib.get_task(task_id)) == {
        "id": AN_ID,
        "name": "send_email",
        "state": "failed",
        "scheduled_at": at("18:00:00"),
        "started_at": A_TIME,
        "completed_at": A_TIME,
        "created_at": at("17:00:00"),
        "args": {},
        "kwargs": {"to": "invalid-email-address", "subject": "Test"},
        "result": None,
        "error": Some(lambda text: "Invalid email address" in text and "in send_email" in text),
        "retry_count": 3,
        "max_retries": 3,
        "next_retry_at": None,
        "worker_id": None,
        "locked_until": None,
        "timeout_seconds": 30,
        "priority": 0,
        "tags": {},
    }
    assert await tasklib.default_queue().aprocess_batch() == 0


async def test_block_07_indexes(queue: TaskQueue, shell: OpenShell) -> None:
    """Indexes (Performance): the five statements run on our table, and tasks run as before.

    They are not needed: our own indexes serve the worker, and each of these makes every finish slower.
    """
    shell(queue).script(statements.CREATE_INDEXES)
    queue.register_handler("send_email", lambda payload: "sent")

    task_id = await queue.aenqueue("send_email")
    await queue.aprocess_batch()

    task = await queue.aget(task_id)
    assert task is not None
    assert task.result == {"value": "sent"}
