"""Code as users write it; no checker finds anything to complain about.  Checked, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, assert_type
from uuid import UUID

import tasklib
from tasklib import (
    Abort,
    AsyncTaskContext,
    Attempt,
    Backoff,
    Config,
    QueueStats,
    Resource,
    Retry,
    Snooze,
    Task,
    TaskContext,
    TaskFailed,
    TaskId,
    TaskIds,
    TaskQueue,
    TaskState,
    TaskWorker,
    WorkerState,
    injected,
)

config = Config(database_url="sqlite:///tasks.db", max_retries=5)
queue = TaskQueue(config)


@dataclass
class Page:
    url: str
    size: int


@queue.task
def crawl(url: str, depth: int = 1) -> Page:
    return Page(url, depth)


@queue.task(name="crawl.async", retry_on=(OSError,), timeout_seconds=30, retry_policy=Backoff(base=1.0))
async def crawl_async(url: str, *, depth: int = 1) -> Page:
    return Page(url, depth)


@tasklib.task
def send_email(to: str, subject: str, body: str = "") -> bool:
    return True


@tasklib.task(max_retries=5, timeout_seconds=30)
def send_later(to: str) -> None: ...


@queue.task
def with_context(count: int, ctx: TaskContext = injected()) -> None:
    assert_type(ctx.task, Task)
    assert_type(ctx.attempt, int)
    assert_type(ctx.cancelled, bool)
    assert_type(ctx.fencing_token, int)
    ctx.progress(0.5, "half")
    ctx.log.info("working")
    if count == 0:
        raise Retry(delay=5)
    if count == 1:
        raise Snooze(timedelta(minutes=1))
    raise Abort("never")


@queue.task
def with_resource(key: str, store: Annotated[dict[str, str], Resource()] = injected()) -> str:
    return store[key]


@queue.task
def with_context_by_name(path: str, *, ctx: TaskContext = injected(), depth: int = 1) -> int:
    return ctx.attempt + depth


@queue.task(context=True)
def context_first(ctx: TaskContext, path: str, depth: int = 1) -> Page:
    return Page(path, ctx.attempt)


@queue.task(context=True, max_retries=5, name="context.async")
async def context_first_async(ctx: AsyncTaskContext, path: str) -> Page:
    return Page(path, ctx.attempt)


@tasklib.task(context=True)
async def context_first_either(ctx: TaskContext, path: str) -> int:
    return ctx.attempt


@queue.task
async def context_in_async(path: str, ctx: AsyncTaskContext = injected()) -> str:
    ctx.progress(0.5)
    return path


@queue.task(context=False)
def without_context(path: str) -> list[int]:
    return [len(path)]


def submitting() -> None:
    assert_type(crawl("https://example.com"), Page)
    assert_type(crawl.submit("https://example.com", depth=2), TaskId[Page])
    assert_type(crawl.options(priority=9, delay_seconds=5).submit("https://example.com"), TaskId[Page])
    chosen = crawl.options(run_at=datetime.now(UTC), unique_key="k", on_conflict="raise")
    assert_type(chosen.submit(url="x"), TaskId[Page])
    assert_type(crawl.submit_many({"url": str(number)} for number in range(10)), TaskIds)
    assert_type(queue.enqueue("send_email", {"to": "a@b.c"}, max_attempts=5), TaskId)
    assert_type(send_email("a@b.c", "Hi"), bool)
    assert_type(send_later.submit(to="a@b.c"), TaskId[None])
    as_uuid: UUID = crawl.submit("x")
    assert_type(crawl.submit("x").created, bool)
    del as_uuid


async def submitting_async() -> None:
    assert_type(await crawl.asubmit("https://example.com", depth=2), TaskId[Page])
    assert_type(await crawl_async.asubmit("https://example.com", depth=2), TaskId[Page])
    assert_type(await crawl_async("https://example.com"), Page)
    assert_type(await crawl.options(priority=1).asubmit("https://example.com"), TaskId[Page])
    assert_type(await queue.aenqueue("send_email", {"to": "a@b.c"}), TaskId)
    sent = await tasklib.submit_task(send_email, delay_seconds=60, priority=5, to="a@b.c", subject="Hi")
    assert_type(sent, TaskId[bool])
    assert_type(await tasklib.submit_task(crawl_async, url="x"), TaskId[Page])
    assert_type(await tasklib.submit_task("send_email", to="a@b.c"), TaskId)

    async def rows() -> AsyncIterator[dict[str, Any]]:
        yield {"url": "x"}

    assert_type(await crawl.asubmit_many(rows()), TaskIds)


def waiting() -> None:
    assert_type(crawl.submit("x").wait(), Page)
    assert_type(crawl_async.submit("x").wait(timeout=60), Page)
    assert_type(crawl_async.options(priority=1).submit("x").wait(60.0), Page)
    assert_type(with_context.submit(3), TaskId[None])
    assert_type(with_context_by_name.submit("x", depth=2).wait(), int)
    assert_type(with_resource.submit("k").wait(), str)
    assert_type(context_in_async.submit("k").wait(), str)
    assert_type(context_first.submit("x", depth=2).wait(), Page)
    assert_type(context_first_async.submit("x").wait(), Page)
    assert_type(context_first_either.submit("x").wait(), int)
    assert_type(without_context.submit("x").wait(), list[int])
    assert_type(queue.enqueue("crawl", {}).wait(), Any)
    assert_type(TaskId("550e8400-e29b-41d4-a716-446655440000").wait(), Any)
    known: TaskId[Page] = TaskId("550e8400-e29b-41d4-a716-446655440000")
    assert_type(known.wait(), Page)
    wider: TaskId[object] = crawl.submit("x")
    del wider
    try:
        crawl.submit("x").wait()
    except TaskFailed as error:
        assert_type(error.task.error, str | None)
        assert_type(error.task_id, UUID)


async def waiting_async() -> None:
    assert_type(await crawl.submit("x").await_(), Page)
    assert_type(await (await crawl_async.asubmit("x")).await_(timeout=60), Page)


def calling(ctx: TaskContext, async_ctx: AsyncTaskContext) -> None:
    assert_type(context_first(ctx, "x", depth=2), Page)
    assert_type(with_context_by_name("x", ctx=ctx), int)
    del async_ctx


def reading(task_id: TaskId) -> None:
    assert_type(queue.get(task_id), Task | None)
    assert_type(queue.get(str(task_id)), Task | None)
    assert_type(queue.list(state="failed", name="crawl", limit=10), list[Task])
    assert_type(queue.list(state=["failed", TaskState.PENDING], tags={"batch": "daily"}), list[Task])
    assert_type(queue.count(state="failed"), int)
    assert_type(queue.stats(), QueueStats)
    assert_type(queue.wait(task_id, timeout=60), Task)
    assert_type(queue.retry(task_id), Task)
    assert_type(queue.cancel(task_id), Task)
    assert_type(queue.delete(task_id), bool)
    assert_type(queue.retry_many(state="failed", dry_run=True), int)
    assert_type(queue.cleanup(older_than=timedelta(days=30)), int)
    assert_type(queue.is_paused(), bool)
    assert_type(queue.process_batch(), int)
    assert_type(queue.recover_stale_tasks(), int)
    assert_type(tasklib.get_task(task_id), Task | None)
    assert_type(tasklib.list_tasks(state="failed"), list[Task])


async def reading_async(task_id: TaskId) -> None:
    assert_type(await queue.aget(task_id), Task | None)
    assert_type(await queue.alist(limit=1), list[Task])
    assert_type(await queue.acount(), int)
    assert_type(await queue.astats(), QueueStats)
    assert_type(await queue.await_(task_id, timeout=60), Task)
    assert_type(await queue.acancel(task_id), Task)
    assert_type(await queue.aprocess_batch(10), int)


def looking_at(task: Task) -> None:
    assert_type(task.id, UUID)
    assert_type(task.state, TaskState)
    assert_type(task.scheduled_at, datetime)
    assert_type(task.history, tuple[Attempt, ...])
    assert_type(tasklib.is_completed(task), bool)


@queue.on_startup
def open_store(state: WorkerState) -> None:
    state.store = {}


@queue.on_shutdown
async def close_store(state: WorkerState) -> None:
    state.store.clear()


def handling(payload: dict[str, Any]) -> str:
    return str(payload["url"])


def handling_task(task: Task) -> None:
    assert_type(task.payload, Any)


queue.register_handler("webhook.outbound", handling)
queue.register_handler("webhook.audit", handling_task, max_retries=0)


async def working() -> None:
    worker = TaskWorker(config, concurrency=4, poll_interval_seconds=1.0)
    await worker.run()
    worker.stop()
    async with TaskQueue("sqlite:///:memory:") as other:
        assert_type(other, TaskQueue)
    with TaskQueue("sqlite:///:memory:") as another:
        another.run(concurrency=2)
