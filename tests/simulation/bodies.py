"""The functions that simulated workers run: each does what its arguments say, and notes that it ran."""

from __future__ import annotations

import asyncio
import threading

import uuid_utils.compat

from tasklib import Abort, AsyncTaskContext, Retry, Snooze, TaskContext, TaskQueue
from tests.simulation.control import DURATION
from tests.simulation.loop import CURRENT
from tests.simulation.truth import Execution, Truth

LIMITED_AT_ONCE = 2
RATE = 2.0
CLEAN_UP_SECONDS = 0.3


class Stage:
    """What the bodies of the run that goes on now use; there is one run at a time."""

    truth: Truth


queue = TaskQueue("sqlite:///:memory:")
"""Bodies are defined once: to compile their parameters takes longer than to simulate them."""


@queue.task(name="plain")
async def plain(behaviour: str, seconds: float, ctx: TaskContext) -> int:
    """Do as asked for."""
    with Stage.truth.executing(ctx.task) as execution:
        await act(behaviour, seconds, ctx, execution)
        return execution.number


@queue.task(name="limited", max_running=LIMITED_AT_ONCE)
async def limited(behaviour: str, seconds: float, ctx: TaskContext) -> int:
    """One of a kind of which few may run at once over all workers."""
    with Stage.truth.executing(ctx.task) as execution:
        await act(behaviour, seconds, ctx, execution)
        return execution.number


@queue.task(name="keyed", concurrency_key="{key}")
async def keyed(behaviour: str, seconds: float, key: str, ctx: TaskContext) -> int:
    """One at a time for each key."""
    with Stage.truth.executing(ctx.task) as execution:
        await act(behaviour, seconds, ctx, execution)
        return execution.number


@queue.task(name="rated", rate=RATE, burst=2)
async def rated(behaviour: str, seconds: float, ctx: TaskContext) -> int:
    """Of which few may start in a second over all workers."""
    with Stage.truth.executing(ctx.task) as execution:
        await act(behaviour, seconds, ctx, execution)
        return execution.number


@queue.task(name="effect", transactional=True)
async def effect(behaviour: str, seconds: float, ctx: TaskContext) -> int:
    """Write a row in the transaction that completes the task."""
    with Stage.truth.executing(ctx.task) as execution:
        ctx.connection.execute("INSERT INTO effects VALUES (?, ?)", (str(ctx.task.id), execution.number))
        await act(behaviour, min(seconds, 0.5), ctx, execution)
        return execution.number


@queue.task(name="blocking")
def blocking(behaviour: str, seconds: float, ctx: TaskContext) -> int:
    """A plain function in a thread, which cannot be stopped."""
    with Stage.truth.executing(ctx.task) as execution:
        setattr(threading.current_thread(), DURATION, seconds)
        if behaviour == "raise":
            raise ValueError("as asked for")
        return execution.number


@queue.task(name="tick")
async def tick(ctx: TaskContext) -> int:
    """The task of a schedule."""
    with Stage.truth.executing(ctx.task) as execution:
        await asyncio.sleep(0.05)
        return execution.number


async def act(behaviour: str, seconds: float, ctx: TaskContext | AsyncTaskContext, execution: Execution) -> None:
    """Do as asked for."""
    first = ctx.attempt == 1
    match behaviour:
        case "raise":
            await asyncio.sleep(seconds)
            raise ValueError("as asked for")
        case "raise once" if first:
            await asyncio.sleep(seconds)
            raise ValueError("the first time")
        case "snooze" if ctx.task.created_at == ctx.task.scheduled_at and execution.version % 3:
            raise Snooze(delay=seconds)
        case "abort":
            raise Abort("as asked for")
        case "retry" if first:
            raise Retry(delay=seconds)
        case "hang":
            await asyncio.sleep(1e6)
        case "slow end":
            await _end_slowly(seconds)
        case "stubborn":
            await _refuse_to_stop(seconds)
        case "submit":
            await asyncio.sleep(seconds)
            await _submit_another(execution)
        case "kill" | "kill once" if first or behaviour == "kill":
            await asyncio.sleep(seconds)
            process = CURRENT.get()
            assert process is not None
            Stage.truth.history.add(process, "is killed by its task")
            process.kill()
            await asyncio.sleep(1e6)
        case _:
            await asyncio.sleep(seconds)
            if seconds > 1:
                ctx.progress(0.5, "half")


async def _submit_another(execution: Execution) -> None:
    """Submit a task: it is there once that is confirmed, or once the transaction is that this one has."""
    task_id = uuid_utils.compat.uuid7()
    is_inside = execution.name == "effect"
    if is_inside:
        Stage.truth.submitted_inside[str(task_id)] = execution
    arguments = {"behaviour": "ok", "seconds": 0.05}
    stored = await execution.process.queue.aenqueue("plain", arguments, id=task_id)
    if not is_inside:
        Stage.truth.acknowledge(stored, "plain")


async def _end_slowly(seconds: float) -> None:
    """Clean up for a while when asked to end."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        await asyncio.sleep(CLEAN_UP_SECONDS)
        raise


async def _refuse_to_stop(seconds: float) -> None:
    """Go on for so long, whoever asks for an end."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while (left := end - loop.time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue
