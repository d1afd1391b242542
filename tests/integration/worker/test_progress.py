"""The last report of progress is recorded together with the end of the attempt, wherever it ran."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tasklib import Abort, Task, TaskContext, TaskQueue
from tests.programs import process_tasks


@pytest.fixture
def queue(database_url: str) -> Iterator[TaskQueue]:
    with TaskQueue(database_url) as queue:
        yield queue


def tell(ctx: TaskContext) -> None:
    ctx.progress(0.9, "nearly")
    ctx.progress(1.0, "all of it")


def run(queue: TaskQueue, *names: str) -> list[tuple[str, str, float | None, str | None]]:
    ids = [queue.enqueue(name) for name in names]
    queue.process_batch()
    found = [queue.get(task_id) for task_id in ids]
    return [(t.name, t.state.value, t.progress, t.progress_message) for t in found if isinstance(t, Task)]


def test_the_last_report_is_on_the_row_of_a_task_that_has_ended(queue: TaskQueue) -> None:
    @queue.task
    async def at_once(ctx: TaskContext) -> None:
        tell(ctx)

    @queue.task
    async def later(ctx: TaskContext) -> None:
        ctx.progress(0.5)
        await asyncio.sleep(0)
        tell(ctx)

    @queue.task
    def thread(ctx: TaskContext) -> None:
        tell(ctx)

    @queue.task(transactional=True)
    def transaction(ctx: TaskContext) -> None:
        tell(ctx)

    @queue.task(transactional=True)
    async def awaiting_transaction(ctx: TaskContext) -> None:
        tell(ctx)

    @queue.task
    def given_up(ctx: TaskContext) -> None:
        tell(ctx)
        raise Abort("enough")

    @queue.task
    def without_words(ctx: TaskContext) -> None:
        ctx.progress(0.5, "half")
        ctx.progress(0.75)

    @queue.task
    async def silent() -> None: ...

    done = ["at_once", "later", "thread", "transaction", "awaiting_transaction"]
    assert run(queue, *done, "given_up", "without_words", "silent") == [
        *((name, "completed", 1.0, "all of it") for name in done),
        ("given_up", "failed", 1.0, "all of it"),
        ("without_words", "completed", 0.75, None),
        ("silent", "completed", None, None),
    ]


@pytest.mark.usefixtures("forked_children")
@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_it_is_also_that_of_a_child_process(database_url: str) -> None:
    with TaskQueue(database_url, registry=process_tasks.queue.registry) as queue:
        assert run(queue, "report_and_end", "report_and_commit") == [
            ("report_and_end", "completed", 1.0, "all of it"),
            ("report_and_commit", "completed", 1.0, "all of it"),
        ]
