"""Middleware, error reporters, headers and log lines around executions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tasklib import Middleware, TaskContext, TaskQueue
from tasklib.core.calls.middleware import wrap_async

pytestmark = pytest.mark.backends("sqlite-memory", "postgres-newest")


@pytest.fixture
def queue(database_url: str) -> Iterator[TaskQueue]:
    with TaskQueue(database_url) as queue:
        yield queue


class Noting(Middleware):
    """Writes down what it sees."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes

    def before(self, ctx: TaskContext) -> None:
        self.notes.append(f"{self.name} before {ctx.task.name}")

    def after(self, ctx: TaskContext, result: Any) -> None:
        self.notes.append(f"{self.name} after {result}")

    def failed(self, ctx: TaskContext, error: BaseException) -> None:
        self.notes.append(f"{self.name} failed {error}")


def define(queue: TaskQueue, kind: str) -> None:
    """A handler `work` that returns its payload, or raises if it is 13."""

    def work(payload: Any) -> Any:
        if payload == 13:
            raise ValueError("unlucky")
        return payload

    async def work_async(payload: Any) -> Any:
        return work(payload)

    queue.register_handler("work", work if kind == "def" else work_async)


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_middleware_runs_around_the_function_outermost_first(queue: TaskQueue, kind: str) -> None:
    notes: list[str] = []
    define(queue, kind)
    queue.add_middleware(Noting("outer", notes))
    queue.add_middleware(Noting("inner", notes))

    queue.enqueue("work", 1)
    queue.process_batch()

    assert notes == ["outer before work", "inner before work", "inner after 1", "outer after 1"]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_middleware_and_error_reporter_see_a_failure(queue: TaskQueue, kind: str) -> None:
    notes: list[str] = []
    define(queue, kind)
    queue.add_middleware(Noting("outer", notes))
    queue.on_error(lambda ctx, error: notes.append(f"reported {ctx.task.name} {error}"))

    queue.enqueue("work", 13, max_attempts=1)
    queue.process_batch()

    assert notes == ["outer before work", "outer failed unlucky", "reported work unlucky"]


def test_an_error_reporter_that_fails_changes_nothing(queue: TaskQueue, caplog: pytest.LogCaptureFixture) -> None:
    define(queue, "def")

    @queue.on_error
    def broken(ctx: TaskContext, error: BaseException) -> None:
        raise RuntimeError("reporter down")

    task_id = queue.enqueue("work", 13, max_attempts=1)
    queue.process_batch()

    task = queue.get(task_id)
    assert task is not None
    assert "unlucky" in (task.error or "")
    assert "error hook" in caplog.text


def test_a_before_hook_that_raises_fails_the_attempt(queue: TaskQueue) -> None:
    define(queue, "def")

    class Refusing(Middleware):
        def before(self, ctx: TaskContext) -> None:
            raise PermissionError("not this tenant")

    queue.add_middleware(Refusing())
    task_id = queue.enqueue("work", 1, max_attempts=1)
    queue.process_batch()

    task = queue.get(task_id)
    assert task is not None
    assert (task.state, "not this tenant" in (task.error or "")) == ("failed", True)


class Awaiting(Middleware):
    """Waits in every hook, and writes down what it sees."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    async def abefore(self, ctx: TaskContext) -> None:
        await asyncio.sleep(0)
        self.notes.append("before")

    async def aafter(self, ctx: TaskContext, result: Any) -> None:
        await asyncio.sleep(0)
        self.notes.append(f"after {result}")

    async def afailed(self, ctx: TaskContext, error: BaseException) -> None:
        await asyncio.sleep(0)
        self.notes.append(f"failed {type(error).__name__}")
        raise RuntimeError("not heard")


def test_awaiting_hooks_surround_coroutines_and_plain_functions_know_nothing_of_them(queue: TaskQueue) -> None:
    notes: list[str] = []
    queue.add_middleware(Awaiting(notes))
    define(queue, "async def")
    queue.enqueue("work", 7)
    queue.enqueue("work", 13, max_attempts=1)
    queue.process_batch()
    queue.register_handler("plain", lambda payload: notes.append("plain"))
    queue.enqueue("plain")
    queue.process_batch()

    assert sorted(notes) == ["after 7", "before", "before", "failed ValueError", "plain"]
    assert queue.count(state="failed") == 1


def test_an_awaiting_hook_sees_a_timeout(queue: TaskQueue) -> None:
    notes: list[str] = []
    queue.add_middleware(Awaiting(notes))

    @queue.task(timeout_seconds=0.01, max_retries=0)
    async def endless() -> None:
        await asyncio.Event().wait()

    endless.submit()
    queue.process_batch()

    assert notes == ["before", "failed CancelledError"]


def test_a_coroutine_that_is_closed_tells_the_plain_hook() -> None:
    notes: list[str] = []

    async def endless() -> None:
        await asyncio.sleep(0)

    async def started(ctx: TaskContext) -> None:
        notes.append("before")

    hook = Noting("plain", notes)
    hook.abefore = started  # type: ignore[method-assign]
    call = wrap_async(endless, [hook], TaskContext(lambda: None))()  # type: ignore[arg-type, return-value]
    call.send(None)
    call.close()

    assert notes == ["before", "plain failed "]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_end_hook_hears_of_tasks_that_ended_for_good(queue: TaskQueue, kind: str) -> None:
    ended: list[str] = []
    queue.on_end(lambda ids: ended.extend(ids) or 1 / 0)
    define(queue, kind)
    done, failed = queue.enqueue("work", 1), queue.enqueue("work", 13, max_attempts=1)
    queue.enqueue("work", 13, max_attempts=2)

    queue.process_batch()

    assert sorted(ended) == sorted([str(done), str(failed)])


def test_headers_travel_from_submission_to_execution_and_on_to_tasks_submitted_there(queue: TaskQueue) -> None:
    seen: list[Any] = []

    def second(ctx: TaskContext) -> None:
        seen.append(dict(ctx.headers))

    queue.register_handler("second", second)
    queue.register_handler("first", lambda payload: queue.enqueue("second", headers={"step": 2}))
    queue.add_headers(lambda: {"request": "r-1"})

    queue.enqueue("first", headers={"tenant": "t-7", "step": 1})
    queue.process_batch()
    queue.process_batch()

    assert seen == [{"tenant": "t-7", "request": "r-1", "step": 2}]


def test_log_lines_are_kept_on_the_task_and_carry_its_details(
    queue: TaskQueue, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tasklib.task")

    def work(ctx: TaskContext) -> None:
        ctx.log("resized %d images", 3)
        ctx.log.warning("one was too large")
        ctx.log.debug("not kept")

    queue.register_handler("work", work)
    task_id = queue.enqueue("work")
    queue.process_batch()

    task = queue.get(task_id)
    assert task is not None
    assert [(line.attempt, line.level, line.text) for line in task.log] == [
        (1, "INFO", "resized 3 images"),
        (1, "WARNING", "one was too large"),
    ]
    [record] = [r for r in caplog.records if r.levelname == "WARNING" and r.name == "tasklib.task"]
    assert (record.task_id, record.task_name, record.attempt) == (str(task_id), "work", 1)  # type: ignore[attr-defined]


def test_only_the_latest_lines_are_kept(queue: TaskQueue) -> None:
    def chatty(ctx: TaskContext) -> None:
        for number in range(450):
            ctx.log("line %d", number)

    queue.register_handler("chatty", chatty)
    task_id = queue.enqueue("chatty")
    queue.process_batch()

    task = queue.get(task_id)
    assert task is not None
    assert (len(task.log), task.log[0].text, task.log[-1].text) == (200, "line 250", "line 449")
