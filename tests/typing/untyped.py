"""Functions without annotations, as many programs have them: no checker complains.  Checked, never run."""
# pyright: basic
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

from typing import Any

import tasklib
from tasklib import TaskQueue

queue = TaskQueue("sqlite:///tasks.db")


@queue.task
def crawl(url, depth=1):
    return {url: depth}


@tasklib.task(max_retries=2)
async def fetch(url):
    return url


@queue.task
def anything(value: Any, other: object) -> Any:
    return value or other


@queue.task(context=True)
def with_context(ctx, path):
    return ctx.attempt, path


def submitting() -> None:
    crawl.submit("https://example.com", depth=2)
    crawl.submit("https://example.com").wait()
    crawl.options(priority=3).submit(url="https://example.com")
    fetch.submit("https://example.com").wait(timeout=60)
    anything.submit(1, "two").wait()
    anything(1, "two")
    with_context.submit("rows.csv")
