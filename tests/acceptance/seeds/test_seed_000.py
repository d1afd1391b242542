"""Seed 000, "TaskLib Specification": every code block, on every database.

The seed's own words for a block are its heading; `docs/specifications.md` says where our spelling differs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from uuid import UUID

import pytest

import tasklib
from tasklib import Config, ManualClock, Task, TaskQueue, TaskWorker
from tests.acceptance.seeds.support import COMPATIBLE, SEED_COLUMNS, Shell, working
from tests.fixtures import python
from tests.fixtures.waiting import PATIENCE, eventually

ROOT = Path(__file__).resolve().parents[3]


def test_block_01_schema(queue: TaskQueue, shell: Callable[[TaskQueue], Shell]) -> None:
    """Schema: the single table `tasks` has each of these columns, with a type that keeps its values."""
    outside = shell(queue)

    found = outside.columns()

    for column, kind in SEED_COLUMNS.items():
        assert found[column][0] in COMPATIBLE[outside.dialect][kind], column


async def test_block_02_core_functions(config: Config) -> None:
    """Core Functions: initialize, register, submit, monitor and work, with the parameters printed there."""
    tasklib.init(config)

    @tasklib.task
    def func(x: int = 0) -> int:
        return x + 1

    @tasklib.task(max_retries=5, timeout_seconds=30)
    def configured() -> None: ...

    task_id = await tasklib.submit_task(
        func, delay_seconds=0, max_retries=None, timeout_seconds=None, priority=0, tags=None, x=41
    )
    assert isinstance(task_id, UUID)
    task = tasklib.get_task(task_id)
    assert isinstance(task, Task)
    tasks = tasklib.list_tasks(state=None, name=None, limit=100)
    assert tasks == [task]
    registered = tasklib.get_registered_tasks()
    assert {name: (options.max_retries, options.timeout_seconds) for name, (_, options) in registered.items()} == {
        "func": (None, None),
        "configured": (5, 30),
    }

    worker = TaskWorker(config, concurrency=1, poll_interval_seconds=1.0)
    async with working(worker):
        finished = await tasklib.default_queue().await_(task_id, timeout=180)

    assert finished.result == {"value": 42}


async def test_block_02_a_task_that_does_not_exist_is_none(config: Config) -> None:
    """Core Functions: `get_task` answers an Optional."""
    tasklib.init(config)

    assert tasklib.get_task(UUID("550e8400-e29b-41d4-a716-446655440001")) is None


async def test_block_03_task_states(clock: ManualClock) -> None:
    """Task States: pending before, running during, completed after success, failed after the last attempt."""
    queue = tasklib.default_queue()
    during: list[Task | None] = []

    @tasklib.task
    def look(task_id: str) -> None:
        during.append(tasklib.get_task(tasklib.current_context().task.id))

    @tasklib.task(max_retries=1)
    def fail() -> None:
        raise ValueError("no")

    good = await tasklib.submit_task(look, task_id="x")
    bad = await tasklib.submit_task(fail)
    assert [task.state for task in tasklib.list_tasks()] == ["pending", "pending"]

    await queue.aprocess_batch()
    waiting = tasklib.get_task(bad)
    clock.advance(5)
    await queue.aprocess_batch()

    assert during[0] is not None
    assert tasklib.is_running(during[0])
    completed, failed = tasklib.get_task(good), tasklib.get_task(bad)
    assert completed is not None
    assert tasklib.is_completed(completed)
    assert waiting is not None
    assert failed is not None
    assert [tasklib.is_terminal(task) for task in (waiting, failed)] == [False, True]
    assert tasklib.is_failed(failed)


def test_block_04_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configuration: these fields in this order, with these defaults."""
    for name in [name for name in os.environ if name.startswith("TASKLIB_")]:
        monkeypatch.delenv(name)

    config = Config(database_url="postgresql://localhost/app")

    expected = {
        "database_url": "postgresql://localhost/app",
        "max_retries": 3,
        "base_retry_delay_seconds": 5.0,
        "retry_backoff_multiplier": 2.0,
        "lock_timeout_seconds": 600,
        "default_task_timeout_seconds": None,
        "worker_id": None,
    }
    assert {entry.name: getattr(config, entry.name) for entry in fields(Config)[:7]} == expected


async def test_block_05_worker_concurrency(config: Config) -> None:
    """Worker Concurrency: `concurrency=4` runs four tasks at once, each in a thread of its own."""
    tasklib.init(config)
    together = threading.Barrier(4)

    @tasklib.task(timeout_seconds=20)
    def meet() -> str:
        together.wait(PATIENCE)
        return threading.current_thread().name

    ids = [await tasklib.submit_task(meet) for _ in range(4)]

    worker = TaskWorker(config, concurrency=4)
    async with working(worker):
        tasks = [await tasklib.default_queue().await_(task_id, timeout=180) for task_id in ids]

    threads = {task.result and task.result["value"] for task in tasks}
    assert len(threads) == 4
    assert threading.current_thread().name not in threads


async def test_block_06_multi_worker(config: Config) -> None:
    """Multi-Worker: worker A holds task T1, so worker B gets T2."""
    tasklib.init(config)
    both = threading.Barrier(2)

    @tasklib.task(timeout_seconds=20)
    def meet() -> str | None:
        both.wait(PATIENCE)
        return tasklib.current_context().worker_id

    ids = [await tasklib.submit_task(meet) for _ in range(2)]

    async with working(TaskWorker(config), TaskWorker(config)):
        tasks = [await tasklib.default_queue().await_(task_id, timeout=180) for task_id in ids]

    assert len({task.result and task.result["value"] for task in tasks}) == 2


@pytest.mark.backends("sqlite-file", "postgres")  # two programs share it
def test_block_07_local_development(database_url: str) -> None:
    """Local Development: `python examples/simple.py` submits tasks, `python examples/worker.py` runs them."""
    environment = os.environ | {"DATABASE_URL": database_url}

    python.run([sys.executable, "examples/simple.py"], cwd=ROOT, env=environment, check=True, timeout=180)
    worker = python.popen([sys.executable, "examples/worker.py"], cwd=ROOT, env=environment)

    try:
        with TaskQueue(database_url) as queue:
            assert queue.count() > 0
            eventually(lambda: queue.count(state="completed") == queue.count())
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(180) == 0


async def test_block_08_production(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Production: the application and its worker, and three replicas of four that run twelve tasks at once."""
    url = config.database_url if config.db_schema is None else f"{config.database_url}?schema={config.db_schema}"
    monkeypatch.setenv("DATABASE_URL", url)
    all_of_them = threading.Barrier(12)

    config = Config(database_url=os.environ["DATABASE_URL"], max_retries=3)
    tasklib.init(config)

    @tasklib.task
    def send_email(to: str) -> None:
        all_of_them.wait(PATIENCE)

    ids = [await tasklib.submit_task(send_email, to=f"user{n}@example.com") for n in range(12)]
    replicas = [TaskWorker(config, concurrency=4, poll_interval_seconds=1.0) for _ in range(3)]
    async with working(*replicas):
        tasks = await asyncio.gather(*(tasklib.default_queue().await_(task_id, timeout=180) for task_id in ids))

    assert all(tasklib.is_completed(task) for task in tasks)
