"""Workers that run a saga, or what undoes it, and are killed before one of their statements, each a process of its own.

    python -m tests.programs.saga_worker kill      one worker for each point, killed there; says which there were
    python -m tests.programs.saga_worker finish    cancel every third saga, and work until all is undone

The variables are those of `workflow_worker`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from tasklib import Abort, AsyncTaskContext, TaskContext, TaskQueue, current_context
from tests.chaos.ledger import note
from tests.programs.workflow_worker import IS_ASYNC, kill_at_each, make_queue

STEPS = ("reserve", "book", "charge")


def define(queue: TaskQueue, number: int) -> str:
    """The saga of one number, under names of its own: it always fails in the end."""
    name = f"saga-{number}"
    schema = queue.config.db_schema
    table = f"{schema}.ledger" if schema else "ledger"

    def write(connection: Any, entry: str) -> None:
        connection.execute(f"INSERT INTO {table} (task, entry) VALUES ('{name}', '{entry}')")

    def effect(entry: str) -> None:
        """Outside of any transaction of ours: it may happen again."""
        with queue.database.transaction() as transaction:
            write(transaction.connection, entry)

    def book() -> None:
        write(current_context().connection, "book")

    @queue.task(name=f"undo-{number}", transactional=True, max_retries=20)
    def undo(entry: str, ctx: TaskContext) -> None:
        note("start", ctx)
        write(ctx.connection, f"undo {entry}")
        note("end", ctx)

    @queue.task(name=name, max_retries=20)
    def blocking(ctx: TaskContext) -> None:
        note("start", ctx)
        ctx.options(name="reserve", undo=undo.bind("reserve")).step(effect, "reserve")
        ctx.options(transactional=True, undo=undo.bind("book")).step(book)
        ctx.options(name="charge", undo=undo.bind("charge")).step(effect, "charge")
        raise Abort("never shipped")

    async def awaiting(ctx: AsyncTaskContext) -> None:
        note("start", ctx)
        await ctx.options(name="reserve", undo=undo.bind("reserve")).step(effect, "reserve")
        await ctx.options(transactional=True, undo=undo.bind("book")).step(book)
        await ctx.options(name="charge", undo=undo.bind("charge")).step(effect, "charge")
        raise Abort("never shipped")

    if IS_ASYNC:
        queue.unregister_handler(name)
        queue.task(name=name, max_retries=20)(awaiting)
    return name


def is_undone(queue: TaskQueue, number: int) -> bool:
    """Whether the saga has ended, and all that undoes it."""
    ended = queue.count(name=f"saga-{number}", state=["failed", "cancelled"])
    undos = queue.list(name=f"undo-{number}")
    return bool(ended) and all(task.completed_at is not None for task in undos)


def begin(queue: TaskQueue, point: int) -> Callable[[], None]:
    queue.enqueue(define(queue, point), {}, max_retries=20)

    def work() -> None:
        while not is_undone(queue, point):
            queue.process_batch()

    return work


def finish(points: list[int]) -> None:
    queue = make_queue()
    for point in points:
        define(queue, point)
    for point in points:
        if point % 3 == 0:
            queue.cancel_many(name=f"saga-{point}")
    deadline = time.monotonic() + 120
    left = set(points)
    while left and time.monotonic() < deadline:
        queue.recover_stale_tasks()
        queue.process_batch()
        left = {point for point in left if not is_undone(queue, point)}


if __name__ == "__main__":
    if sys.argv[1] == "kill":
        print(json.dumps(kill_at_each(begin)))
    else:
        finish(json.loads(os.environ["WORKFLOW_POINTS"]))
