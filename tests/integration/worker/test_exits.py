"""A task that leaves by `sys.exit()`, or by an exception that is no `Exception`, fails; its worker goes on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import pytest

from tasklib import Config, TaskQueue


class Unusual(BaseException):
    """Not caught by `except Exception`."""


@pytest.fixture
def queue() -> Iterator[TaskQueue]:
    with TaskQueue(Config(database_url="sqlite:///:memory:", max_retries=0)) as queue:
        yield queue


@pytest.mark.parametrize("raised", [SystemExit(3), Unusual("strange")], ids=["sys.exit", "unusual"])
def test_it_fails_alone_wherever_it_runs(queue: TaskQueue, raised: BaseException) -> None:
    @queue.task
    async def at_once() -> None:
        raise raised

    @queue.task
    async def later() -> None:
        await asyncio.sleep(0)
        raise raised

    @queue.task
    def thread() -> None:
        raise raised

    @queue.task
    async def innocent() -> None: ...

    names = ["innocent", "at_once", "innocent", "later", "thread", "innocent"]
    ids = [queue.enqueue(name, max_attempts=1) for name in names]
    queue.process_batch()

    ended = [queue.get(task_id) for task_id in ids]
    assert [task and task.state.value for task in ended] == [
        "completed" if name == "innocent" else "failed" for name in names
    ]
    assert all(type(raised).__name__ in task.error for task in ended if task and task.error)


def test_the_code_of_an_exit_is_in_the_error(queue: TaskQueue) -> None:
    @queue.task
    def leave() -> None:
        sys.exit("no such file")

    task_id = leave.submit()
    queue.process_batch()

    task = queue.get(task_id)
    assert task is not None
    assert (task.error or "").endswith("SystemExit: no such file")
