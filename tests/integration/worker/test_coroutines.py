"""Coroutines that begin in one asyncio task keep apart what each of them sees and suffers."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from tasklib import Config, TaskQueue, TaskState, current_context

who: ContextVar[str] = ContextVar("who", default="nobody")


@pytest.fixture
def queue() -> TaskQueue:
    return TaskQueue(Config(database_url="sqlite:///:memory:", max_retries=0))


async def run(queue: TaskQueue, *names: str) -> list[str]:
    """The states in which tasks of these names end, run together."""
    ids = [await queue.aenqueue(name, max_attempts=1) for name in names]
    await queue.aprocess_batch()
    ended = [await queue.aget(task_id) for task_id in ids]
    return [task.state.value if task else "gone" for task in ended]


async def test_context_variables_of_one_are_not_seen_by_the_next(queue: TaskQueue) -> None:
    seen = []

    @queue.task
    async def quick() -> None:
        seen.append((who.get(), current_context().task.name))
        who.set("quick")

    @queue.task
    async def slow() -> None:
        who.set("slow")
        await asyncio.sleep(0.01)
        seen.append((who.get(), current_context().task.name))

    assert await run(queue, "quick", "slow", "quick", "slow") == ["completed"] * 4
    assert sorted(seen) == [("nobody", "quick")] * 2 + [("slow", "slow")] * 2


async def test_one_that_waits_keeps_its_task_and_the_others_go_on(queue: TaskQueue) -> None:
    tasks = []
    opened = asyncio.Event()

    @queue.task
    async def waiting() -> None:
        tasks.append(asyncio.current_task())
        await opened.wait()
        tasks.append(asyncio.current_task())

    @queue.task
    async def opening() -> None:
        opened.set()

    ids = [await queue.aenqueue("waiting"), await queue.aenqueue("opening")]
    worker = asyncio.ensure_future(queue.arun(concurrency=2, signals=False))
    assert (await queue.await_(ids[0], timeout=180)).state is TaskState.COMPLETED
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    assert tasks[0] is tasks[1]


async def test_one_that_cancels_its_own_task_does_not_cancel_the_next(queue: TaskQueue) -> None:
    @queue.task
    async def rash() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    @queue.task
    async def waiting() -> None:
        await asyncio.sleep(0.01)

    assert await run(queue, "rash", "waiting", "waiting") == ["completed"] * 3


async def test_one_that_cancels_its_own_task_and_fails_does_not_stop_the_worker(queue: TaskQueue) -> None:
    @queue.task
    async def rash() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        raise ValueError("and fails")

    @queue.task
    async def quick() -> None: ...

    assert await run(queue, "rash", "quick", "rash", "quick") == ["failed", "completed"] * 2


async def test_a_timeout_counts_from_the_first_step(queue: TaskQueue) -> None:
    @queue.task(timeout_seconds=0.05)
    async def endless() -> None:
        await asyncio.sleep(60)

    assert await run(queue, "endless") == ["failed"]


async def test_an_own_timeout_inside_works_from_the_first_step_on(queue: TaskQueue) -> None:
    @queue.task
    async def patient() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            return "gave up"
        return "never"

    @queue.task
    async def quick() -> None: ...

    assert await run(queue, "quick", "patient", "quick") == ["completed"] * 3


async def test_what_raises_at_once_fails_alone(queue: TaskQueue) -> None:
    @queue.task
    async def broken() -> None:
        raise ValueError("no")

    @queue.task
    async def quick() -> None: ...

    assert await run(queue, "quick", "broken", "quick") == ["completed", "failed", "completed"]


async def test_an_awaitable_that_is_no_coroutine_is_awaited(queue: TaskQueue) -> None:
    class Answer:
        async def __call__(self) -> int:
            await asyncio.sleep(0)
            return 42

    queue.register_handler("answer", Answer())
    assert await run(queue, "answer") == ["completed"]


async def test_an_error_that_is_its_own_cause_is_a_failure_like_any_other(queue: TaskQueue) -> None:
    @queue.task
    async def circular() -> None:
        error = ValueError("again")
        raise error from error

    @queue.task
    async def fine() -> None: ...

    assert await run(queue, "circular", "fine") == ["failed", "completed"]
