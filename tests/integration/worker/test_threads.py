"""Plain functions that are called one after the other in one thread do not wait for each other, nor see each other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable
from contextvars import ContextVar
from uuid import UUID

import pytest

from tasklib import Config, TaskContext, TaskQueue, TaskState, current_context

QUICK = 60
"""Enough calls to be known as quick."""
who: ContextVar[str] = ContextVar("who", default="nobody")


@pytest.fixture
async def queue() -> AsyncIterator[TaskQueue]:
    """A queue with a worker that runs many functions at once."""
    queue = TaskQueue(Config(database_url="sqlite:///:memory:", max_retries=0))
    worker = asyncio.ensure_future(queue.arun(concurrency=100, signals=False))
    yield queue
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    await queue.aclose()


async def test_what_waits_behind_a_slow_one_gets_a_thread_of_its_own(queue: TaskQueue) -> None:
    opened = threading.Event()

    @queue.task
    def door(do: str) -> bool:
        if do == "open":
            opened.set()
        return opened.wait() if do == "wait" else True

    await all_end(queue, door.submit_many([{"do": "nothing"}] * QUICK))
    waiting = [door.submit("wait") for _ in range(5)]
    await all_end(queue, [*waiting, door.submit("open"), *(door.submit("wait") for _ in range(5))])


async def test_results_do_not_wait_for_a_slow_one(queue: TaskQueue) -> None:
    opened = threading.Event()

    @queue.task
    def door(wait: bool) -> bool:
        return opened.wait() if wait else True

    await all_end(queue, door.submit_many([{"wait": False}] * QUICK))
    ids = list(door.submit_many([{"wait": n == 10} for n in range(20)]))
    await all_end(queue, [task_id for n, task_id in enumerate(ids) if n != 10])
    slow = await queue.aget(ids[10])
    assert slow is not None
    assert slow.state is TaskState.RUNNING
    opened.set()
    await all_end(queue, ids)


async def test_each_has_its_own_context(queue: TaskQueue) -> None:
    seen: list[tuple[str, int, object]] = []

    @queue.task
    def look(n: int) -> None:
        context = current_context()
        seen.append((who.get(), n, context.task.kwargs["n"]))
        who.set(f"number {n}")
        assert current_context() is context

    await all_end(queue, look.submit_many([{"n": n} for n in range(QUICK * 2)]))
    assert sorted(seen) == [("nobody", n, n) for n in range(QUICK * 2)]


async def test_one_failure_among_many_is_its_own(queue: TaskQueue) -> None:
    @queue.task
    def odd(n: int) -> int:
        if n == 30:
            raise ValueError("thirty")
        return n

    await all_end(queue, odd.submit_many([{"n": 0}] * QUICK))
    ids = list(odd.submit_many([{"n": n} for n in range(QUICK)]))
    ended = [await queue.await_(task_id, timeout=180) for task_id in ids]
    assert [task.state.value for task in ended] == ["completed"] * 30 + ["failed"] + ["completed"] * 29
    assert [task.result for task in ended[:30]] == [{"value": n} for n in range(30)]
    assert "thirty" in (ended[30].error or "")


async def test_a_request_to_cancel_reaches_one_of_many(queue: TaskQueue) -> None:
    @queue.task
    def patient(wait: bool, ctx: TaskContext) -> None:
        if wait:
            ctx.wait_cancelled()
            raise RuntimeError("asked to end")

    await all_end(queue, patient.submit_many([{"wait": False}] * QUICK))
    ids = list(patient.submit_many([{"wait": n == 5} for n in range(10)]))
    await all_end(queue, [task_id for n, task_id in enumerate(ids) if n != 5])
    await queue.acancel(ids[5])
    assert (await queue.await_(ids[5], timeout=180)).state is TaskState.CANCELLED


async def all_end(queue: TaskQueue, ids: Iterable[UUID]) -> None:
    """Wait until every one of them is completed."""
    for task_id in ids:
        assert (await queue.await_(task_id, timeout=180)).state is TaskState.COMPLETED
