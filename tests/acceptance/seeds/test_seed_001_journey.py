"""Seed 001: one task from its submission to its result, step by step, on every database."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

import tasklib
from tasklib import Config, ManualClock, TaskQueue, TaskWorker
from tasklib.core.codec import loads
from tests.acceptance.seeds import statements
from tests.acceptance.seeds.examples import A_TIME, at, check_pickup, define_send_email, if_running
from tests.acceptance.seeds.statements import Printed
from tests.acceptance.seeds.support import OpenShell, working
from tests.fixtures.waiting import PATIENCE, aeventually


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
    check_pickup(statements.POLL, queue, shell(queue))


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
    send_email = define_send_email(lambda: proceed.wait(PATIENCE))
    task_id = await tasklib.submit_task(send_email, to="user@example.com", subject="Hello")
    five_o_clock.advance(hours=1, seconds=5)

    async with working(TaskWorker(config)):
        running = await aeventually(lambda: if_running(task_id))
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
