"""Seed 001, "Final PostgreSQL Schema": every code block, on every database.

What it prints in SQL runs unchanged on PostgreSQL; `statements.py` has it, with the form for SQLite beside it.
"""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

import tasklib
from tasklib import Config, ManualClock, Task, TaskQueue, TaskWorker
from tasklib.codec import loads
from tests.acceptance.seeds import statements
from tests.acceptance.seeds.statements import Printed
from tests.acceptance.seeds.support import COMPATIBLE, SEED_COLUMNS, Shell, url_of, working
from tests.fixtures.backends import libpq_url
from tests.fixtures.waiting import aeventually
from tools.postgres import available

OpenShell = Callable[[TaskQueue], Shell]

NULLABLE = {"started_at", "completed_at", "result", "error", "next_retry_at", "worker_id", "locked_until"}
NULLABLE |= {"timeout_seconds"}
DEFAULTS = {"args": "{}", "tags": "{}", "retry_count": "0", "priority": "0"}


class Some:
    """Equal to whatever passes the check: a value whose kind is known, but not its exact content."""

    def __init__(self, check: Callable[[Any], bool]) -> None:
        self._check = check

    def __eq__(self, other: object) -> bool:
        return self._check(other)

    def __hash__(self) -> int:
        return 0


AN_ID = Some(lambda value: isinstance(value, UUID))
A_TIME = Some(lambda value: isinstance(value, datetime) and value.tzinfo is not None)


def at(clock_time: str) -> datetime:
    """A moment of the day on which the seed's examples happen."""
    return datetime.fromisoformat(f"2025-10-25T{clock_time}").replace(tzinfo=UTC)


def record(task: Task | None) -> dict[str, Any]:
    """The fields the seed prints, in its order."""
    assert task is not None
    return {column: getattr(task, column) for column in SEED_COLUMNS}


@pytest.fixture
def five_o_clock(config: Config) -> ManualClock:
    """The default queue at the moment the seed's example tasks are submitted."""
    tasklib.init(config)
    clock = ManualClock(at("17:00:00"))
    tasklib.default_queue().clock = clock
    return clock


def define_send_email(action: Callable[[], Any] = lambda: True) -> Any:
    """The task of all examples; what it does differs."""

    @tasklib.task(name="send_email", timeout_seconds=30)
    def send_email(to: str, subject: str, body: str = "") -> Any:
        return action()

    return send_email


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
    send_email = define_send_email(lambda: proceed.wait(20))
    task_id = await tasklib.submit_task(send_email, delay_seconds=3600, to="bob@example.com", subject="Hello Bob")
    five_o_clock.advance(hours=1, minutes=5, seconds=23)

    async with working(TaskWorker(named)):
        running = await aeventually(lambda: _if_running(task_id))
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


def _if_running(task_id: UUID) -> Task | None:
    task = tasklib.get_task(task_id)
    return task if task is not None and tasklib.is_running(task) else None


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


@pytest.mark.parametrize("printed", [statements.PICKUP], ids=["pickup"])
def test_block_08_pickup_query(printed: Printed, queue: TaskQueue, shell: OpenShell) -> None:
    """Indexes (Performance): the query of every poll finds the due task of the highest priority."""
    _check_pickup(printed, queue, shell(queue))


def _check_pickup(printed: Printed, queue: TaskQueue, outside: Shell) -> None:
    queue.clock = ManualClock(datetime.now(UTC) - timedelta(minutes=1))
    queue.enqueue("ordinary")
    urgent = queue.enqueue("urgent", priority=5)
    queue.enqueue("later", priority=9, delay_seconds=3600)

    (row,) = outside.choose(postgres=printed.postgres, sqlite=printed.sqlite)

    columns = [name for name, *_ in outside.choose(postgres=_NAMES_POSTGRES, sqlite=_NAMES_SQLITE)]
    assert str(row[columns.index("id")]) == str(urgent)


_NAMES_POSTGRES = (
    "SELECT column_name FROM information_schema.columns"
    " WHERE table_name = 'tasks' AND table_schema = current_schema() ORDER BY ordinal_position"
)
_NAMES_SQLITE = "SELECT name FROM pragma_table_xinfo('tasks')"


def test_block_09_clean_up(queue: TaskQueue, shell: OpenShell) -> None:
    """Cleanup Policy: completed tasks go after 30 days, failed ones after 90, and nothing else."""
    outside = shell(queue)
    kept = _finish_long_ago(queue, completed_days=29, failed_days=89)
    _finish_long_ago(queue, completed_days=31, failed_days=91)

    completed = outside.choose(postgres=statements.CLEAN_COMPLETED.postgres, sqlite=statements.CLEAN_COMPLETED.sqlite)
    failed = outside.choose(postgres=statements.CLEAN_FAILED.postgres, sqlite=statements.CLEAN_FAILED.sqlite)

    assert (completed, failed) == ([(1,)], [(1,)])
    assert {task.id for task in queue.list()} == kept


def _finish_long_ago(queue: TaskQueue, *, completed_days: int, failed_days: int) -> set[UUID]:
    """A task that completed and one that failed for good, so many days ago."""

    def fail(payload: Any) -> None:
        raise ValueError("no")

    queue.register_handler("good", lambda payload: None)
    queue.register_handler("bad", fail)
    ids = set[UUID]()
    for name, days in (("good", completed_days), ("bad", failed_days)):
        queue.clock = ManualClock(datetime.now(UTC) - timedelta(days=days))
        ids.add(queue.enqueue(name, max_attempts=1).id)
        assert queue.process_batch() == 1
    queue.unregister_handler("bad")
    queue.unregister_handler("good")
    return ids


def test_block_10_clean_up_by_cron(queue: TaskQueue, shell: OpenShell) -> None:
    """Cleanup Policy: the line of the crontab, at two in the morning."""
    outside = shell(queue)
    _finish_long_ago(queue, completed_days=31, failed_days=91)
    line = statements.CRON.postgres if outside.dialect == "postgres" else statements.CRON.sqlite

    minute, hour, _, _, _, program, *arguments = shlex.split(line)
    assert (minute, hour) == ("0", "2")
    if program == "psql":
        psql = [str(available()[0].bindir / program)]
        given = [libpq_url(url_of(queue)) if argument == "mydb" else argument for argument in arguments]
        subprocess.run(psql + given, check=True, timeout=30, stdout=subprocess.DEVNULL)
    else:  # the sqlite3 program may not be installed; its last argument is what it would run
        outside.run(arguments[-1])

    assert [task.name for task in queue.list()] == ["bad"]


async def test_block_11_submit(config: Config) -> None:
    """1. User submits task (Python): the answer is the task's UUID."""
    tasklib.init(config)
    send_email = define_send_email()

    task_id = await tasklib.submit_task(send_email, to="user@example.com", subject="Hello")

    assert isinstance(task_id, UUID)
    assert tasklib.get_task(task_id) is not None


async def test_block_12_the_row_after_submit(config: Config, shell: OpenShell) -> None:
    """1. User submits task (Python), in database: the row has these values."""
    tasklib.init(config)
    send_email = define_send_email()
    task_id = await tasklib.submit_task(send_email, to="user@example.com", subject="Hello")

    outside = shell(tasklib.default_queue())
    (row,) = outside.run("SELECT id, name, state, kwargs, scheduled_at FROM tasks")

    assert str(row[0]) == str(task_id)
    assert row[1:3] == ("send_email", "pending")
    kwargs = loads(row[3]) if isinstance(row[3], str) else row[3]
    assert kwargs == {"to": "user@example.com", "subject": "Hello"}
    assert row[4] is not None


def test_block_13_poll_query(queue: TaskQueue, shell: OpenShell) -> None:
    """2. Worker polls (SELECT FOR UPDATE): the query finds the due task of the highest priority."""
    _check_pickup(statements.POLL, queue, shell(queue))


def test_block_13_the_oldest_of_a_priority_is_first(queue: TaskQueue, shell: OpenShell) -> None:
    """2. Worker polls (SELECT FOR UPDATE): within a priority the order is that of submission."""
    outside = shell(queue)
    queue.clock = clock = ManualClock(datetime.now(UTC) - timedelta(minutes=1))
    first = queue.enqueue("send_email")
    clock.advance(1)
    queue.enqueue("send_email")

    only_ids = [text.replace("SELECT *", "SELECT id") for text in (statements.POLL.postgres, statements.POLL.sqlite)]
    ((found,),) = outside.choose(postgres=only_ids[0], sqlite=only_ids[1])

    assert str(found) == str(first)


async def test_block_14_the_row_when_picked_up(five_o_clock: ManualClock, config: Config) -> None:
    """2. Worker polls (SELECT FOR UPDATE): the worker notes itself, the start, and a lock of ten minutes."""
    proceed = threading.Event()
    send_email = define_send_email(lambda: proceed.wait(20))
    task_id = await tasklib.submit_task(send_email, to="user@example.com", subject="Hello")
    five_o_clock.advance(hours=1, seconds=5)

    async with working(TaskWorker(config)):
        running = await aeventually(lambda: _if_running(task_id))
        proceed.set()

    assert running is not None
    assert (running.state, running.started_at) == ("running", at("18:00:05"))
    assert running.locked_until == at("18:10:05")
    assert running.worker_id


async def test_block_15_the_function_runs_beside_the_event_loop(config: Config) -> None:
    """3. Worker executes task: a plain function runs in a thread, with its arguments by name."""
    tasklib.init(config)
    called: list[tuple[str, str, bool]] = []

    @tasklib.task
    def send_email(to: str, subject: str) -> bool:
        called.append((to, subject, threading.current_thread() is threading.main_thread()))
        return True

    await tasklib.submit_task(send_email, to="user@example.com", subject="Hello")
    await tasklib.default_queue().aprocess_batch()
    loop = asyncio.get_running_loop()
    result = await loop.run_in_executor(None, lambda: send_email(to="user@example.com", subject="Hello"))

    assert result is True
    assert called == [("user@example.com", "Hello", False)] * 2


async def test_block_16_the_row_after_success(config: Config) -> None:
    """4. Worker updates DB with result: completed, the value stored, the lock gone."""
    tasklib.init(config)
    send_email = define_send_email()
    task_id = await tasklib.submit_task(send_email, to="user@example.com", subject="Hello")

    await tasklib.default_queue().aprocess_batch()

    task = tasklib.get_task(task_id)
    assert task is not None
    assert (task.state, task.result) == ("completed", {"value": True})
    assert task.completed_at == A_TIME
    assert (task.worker_id, task.locked_until) == (None, None)


async def test_block_17_application_queries_result(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    """5. Application queries result."""
    tasklib.init(config)
    send_email = define_send_email()
    task_id = await tasklib.submit_task(send_email, to="user@example.com", subject="Hello")
    await tasklib.default_queue().aprocess_batch()

    task = tasklib.get_task(task_id)
    assert task is not None
    assert task.result is not None
    if tasklib.is_completed(task):
        print(f"Task result: {task.result['value']}")

    assert capsys.readouterr().out == "Task result: True\n"


def test_block_18_everything_in_one_table(queue: TaskQueue, shell: OpenShell) -> None:
    """All in One Place: what is pending, what failed in the last hour, and how long tasks take."""
    outside = shell(queue)

    def fail(payload: Any) -> None:
        raise ValueError("broken")

    queue.clock = ManualClock(datetime.now(UTC) - timedelta(minutes=1))
    queue.register_handler("good", lambda payload: None)
    queue.register_handler("bad", fail)
    for name in ("good", "good", "bad"):
        queue.enqueue(name, max_attempts=1)
    queue.process_batch()
    waiting = queue.enqueue("nobody.knows")

    def ask(printed: Printed) -> list[tuple[Any, ...]]:
        return outside.choose(postgres=printed.postgres, sqlite=printed.sqlite)

    assert [(str(task_id), name) for task_id, name in ask(statements.PENDING)] == [(str(waiting), "nobody.knows")]
    ((_, name, error),) = ask(statements.RECENT_FAILURES)
    assert name == "bad"
    assert "broken" in error
    ((name, count, seconds),) = ask(statements.DURATIONS)
    assert (name, count) == ("good", 2)
    assert 0 <= seconds < 60
