"""Mistakes that a checker must find, each on the line that says so, and nowhere else.  Checked, never run."""

from __future__ import annotations

from tasklib import AsyncTaskContext, Config, Task, TaskContext, TaskId, TaskQueue, injected

queue = TaskQueue("sqlite:///tasks.db")


@queue.task
def crawl(url: str, depth: int = 1) -> dict[str, int]:
    return {url: depth}


@queue.task(max_retries=2)
async def fetch(url: str) -> bytes:
    return url.encode()


@queue.task
def with_context(path: str, ctx: TaskContext = injected()) -> int:
    return ctx.attempt


@queue.task(context=True)
def context_first(ctx: TaskContext, path: str) -> int:
    return ctx.attempt


@queue.task(context=True)
async def context_first_async(ctx: AsyncTaskContext, path: str) -> int:
    return ctx.attempt


@queue.task(context=True)  # expect-error
def no_context(path: str) -> int:
    return len(path)


@queue.task(context=True)  # expect-error
def cannot_await(ctx: AsyncTaskContext, path: str) -> int:
    return len(path)


def wrong_with_context(ctx: TaskContext) -> None:
    with_context.submit()  # expect-error
    with_context.submit(1)  # expect-error
    with_context.submit("x", ctx=1)  # expect-error
    context_first.submit()  # expect-error
    context_first.submit(ctx, "x")  # expect-error
    context_first.submit("x", "y")  # expect-error
    context_first("x")  # expect-error
    context_first_async.submit(1)  # expect-error


def wrong_results() -> None:
    text: str = with_context.submit("x").wait()  # expect-error
    other: TaskId[str] = fetch.submit("x")  # expect-error
    number: int = fetch.submit("x").wait()  # expect-error
    with_context.submit("x").wait("5")  # expect-error
    print(text, other, number)


def wrong_arguments() -> None:
    crawl.submit(depth="x")  # expect-error
    crawl.submit()  # expect-error
    crawl.submit("https://example.com", dept=2)  # expect-error
    crawl.submit("https://example.com", 1, 2)  # expect-error
    crawl.submit(b"https://example.com")  # expect-error
    crawl.options(priority=9).submit(1)  # expect-error
    crawl(1)  # expect-error
    fetch.submit(1)  # expect-error


async def wrong_arguments_async() -> None:
    await crawl.asubmit(depth="x")  # expect-error
    await fetch.asubmit()  # expect-error


def wrong_answers() -> None:
    number: int = crawl("https://example.com")  # expect-error
    text: str = queue.count()  # expect-error
    task: Task = queue.get("550e8400-e29b-41d4-a716-446655440000")  # expect-error
    print(number, text, task)


async def forgotten_await() -> None:
    task: Task | None = queue.aget("550e8400-e29b-41d4-a716-446655440000")  # expect-error
    print(task)


def wrong_settings() -> None:
    Config(database_url="sqlite:///tasks.db", max_retrys=3)  # expect-error
    Config(database_url="sqlite:///tasks.db", max_retries="three")  # expect-error
    queue.list(stat="failed")  # expect-error (not by ty)
    queue.list(limit="ten")  # expect-error
    queue.get(7)  # expect-error
    queue.wait("550e8400-e29b-41d4-a716-446655440000", timeout="5")  # expect-error


def wrong_options() -> None:
    queue.task(max_retrys=3)  # expect-error (not by ty)
    queue.task(isolation="fiber")  # expect-error
    crawl.options(priority="high")  # expect-error
    crawl.options(delay=5)  # expect-error (not by ty)
    crawl.options(on_conflict="ignore")  # expect-error
    queue.enqueue("crawl", {}, uniqe_key="k")  # expect-error (not by ty)
    queue.register_handler("crawl", print, timeout="30")  # expect-error (not by ty)
