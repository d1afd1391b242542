"""Workers that run a workflow and are killed before one of its statements, each a process of its own.

    python -m tests.programs.workflow_worker kill      one worker for each point, killed there; says how many there were
    python -m tests.programs.workflow_worker finish    work until every workflow has completed

WORKFLOW_URL is the database, WORKFLOW_KIND is `def` or `async def`, WORKFLOW_EVERY takes each so many points.  Before a
statement is after the one before it: nothing else is done in between but the user's own code.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Generator
from typing import Any

from tasklib import AsyncTaskContext, Config, TaskContext, TaskQueue, current_context
from tasklib.storage import run
from tests.chaos.ledger import note

URL = os.environ.get("WORKFLOW_URL", "sqlite:///:memory:")
IS_ASYNC = os.environ.get("WORKFLOW_KIND") == "async def"
EVERY = int(os.environ.get("WORKFLOW_EVERY", "1"))
MOST = 400
"""More statements than a workflow has."""


Begin = Callable[[TaskQueue, int], Callable[[], None]]
"""Submits the work of one number, and gives what runs it to its end."""


def make_queue() -> TaskQueue:
    settings = Config(database_url=URL, base_retry_delay_seconds=0.05, poll_interval_seconds=0.1)
    return TaskQueue(settings)


def define(queue: TaskQueue, number: int) -> str:
    """The workflow of one number, under names of its own."""
    name = f"workflow-{number}"
    schema = queue.config.db_schema
    table = f"{schema}.ledger" if schema else "ledger"

    def book(entry: str) -> str:
        current_context().connection.execute(f"INSERT INTO {table} (task, entry) VALUES ('{name}', '{entry}')")
        return entry

    @queue.task(name=f"child-{number}")
    def child(n: int, ctx: TaskContext) -> int:
        note("start", ctx)
        note("end", ctx)
        return n * n

    @queue.task(name=f"after-{number}", transactional=True)
    def after(total: int, ctx: TaskContext) -> int:
        note("start", ctx)
        ctx.connection.execute(f"INSERT INTO {table} (task, entry) VALUES ('{name}', 'after {total}')")
        note("end", ctx)
        return total

    def submit_flow(total: int) -> list[str]:
        flow = queue.flow(name)
        first = flow.add(child.options(tags={"in": "flow"}).bind(total))
        flow.add(after.bind(first.result))
        return [str(each) for each in flow.submit(connection=current_context().connection)]

    @queue.task(name=name, max_retries=20)
    def blocking(ctx: TaskContext) -> int:
        note("start", ctx)
        ctx.options(transactional=True).step(book, "debit")
        told = ctx.wait(f"told-{number}", int)
        done = ctx.map(child, [{"n": n} for n in range(3)])
        total = ctx.step(lambda: sum(done.results())) + ctx.run(child.bind(told))
        ctx.options(transactional=True, name="flow").step(submit_flow, 2)
        ctx.options(transactional=True, name="credit").step(book, "credit")
        note("end", ctx)
        return total

    async def awaiting(ctx: AsyncTaskContext) -> int:
        note("start", ctx)
        await ctx.options(transactional=True).step(book, "debit")
        told = await ctx.wait(f"told-{number}", int)
        done = await ctx.map(child, [{"n": n} for n in range(3)])
        total = await ctx.options(name="<lambda>").step(lambda: sum(done.results()))
        total += await ctx.run(child.bind(told))
        await ctx.options(transactional=True, name="flow").step(submit_flow, 2)
        await ctx.options(transactional=True, name="credit").step(book, "credit")
        note("end", ctx)
        return total

    if IS_ASYNC:
        queue.unregister_handler(name)
        queue.task(name=name, max_retries=20)(awaiting)
    return name


def kill_before(point: int) -> None:
    """Kill this process before its statement of this number is sent."""
    original, sent = run._steps, [0]

    def counting(*args: Any) -> Generator[Any, Any, Any]:
        inner = original(*args)
        step = next(inner)
        while True:
            sent[0] += 1
            if sent[0] == point:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                answer = yield step
            except BaseException as error:  # noqa: BLE001
                step = inner.throw(error)
            else:
                try:
                    step = inner.send(answer)
                except StopIteration as stop:
                    return stop.value

    def safely(*args: Any) -> Generator[Any, Any, Any]:
        try:
            return (yield from counting(*args))
        except StopIteration as stop:
            return stop.value

    run._steps = safely  # type: ignore[assignment]


def work(queue: TaskQueue, name: str) -> None:
    """Run the workflow until it has completed."""
    number = name.partition("-")[2]
    while queue.count(name=name, state="completed") == 0:
        queue.process_batch()
        queue.emit(f"told-{number}", 3)


def is_killed(point: int, begin: Begin) -> bool:
    """Whether a worker of its own process was killed at the point; False if the work has fewer statements."""
    process = os.fork()
    if process == 0:
        work = begin(make_queue(), point)
        kill_before(point)
        work()
        os._exit(0)
    _, status = os.waitpid(process, 0)
    return os.WIFSIGNALED(status)


def kill_at_each(begin: Begin) -> list[int]:
    """The points at which workers were killed, and one after the last statement."""
    points = []
    for point in range(1, MOST, EVERY):
        points.append(point)
        if not is_killed(point, begin):
            return points
    raise AssertionError(f"it never ended within {MOST} statements")


def begin(queue: TaskQueue, point: int) -> Callable[[], None]:
    name = define(queue, point)
    queue.enqueue(name, {}, max_retries=20)
    return lambda: work(queue, name)


def finish(points: list[int]) -> None:
    queue = make_queue()
    names = [define(queue, point) for point in points]
    deadline = time.monotonic() + 120
    # Each is a workflow, three mapped children, one that it runs, and two of its flow.
    while queue.count(state="completed") < 7 * len(names) and time.monotonic() < deadline:
        queue.recover_stale_tasks()
        queue.process_batch()
        for point in points:
            queue.emit(f"told-{point}", 3)


if __name__ == "__main__":
    if sys.argv[1] == "kill":
        print(json.dumps(kill_at_each(begin)))
    else:
        finish(json.loads(os.environ["WORKFLOW_POINTS"]))
