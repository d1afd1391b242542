"""Tasks whose bodies run on a cluster: they note each start and end, and whether an earlier attempt still runs."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import tasklib
from tasklib import AsyncTaskContext, TaskContext
from tests.chaos.ledger import LEDGER, Ledger, note


def begin(ctx: TaskContext | AsyncTaskContext) -> None:
    """Note the start; and an overlap, if the process of an earlier attempt at this task is still there."""
    earlier = {entry.pid for entry in Ledger(Path(os.environ[LEDGER])).starts_of(ctx.task.id)} - {os.getpid()}
    note("start", ctx)
    for pid in earlier:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            continue
        note("overlap", ctx)


@tasklib.task
def add(ctx: TaskContext, a: int, b: int) -> int:
    begin(ctx)
    note("end", ctx)
    return a + b


@tasklib.task
async def add_async(ctx: AsyncTaskContext, a: int, b: int) -> int:
    begin(ctx)
    await asyncio.sleep(0)
    note("end", ctx)
    return a + b


@tasklib.task
def talk(ctx: TaskContext) -> list[int]:
    begin(ctx)
    ctx.progress(0.5, "half")
    ctx.log.info("halfway there")
    note("end", ctx)
    return [ctx.fencing_token, ctx.attempt]


@tasklib.task(max_retries=0)
def fail(ctx: TaskContext) -> None:
    begin(ctx)
    raise ValueError("no such luck")


@tasklib.task(max_retries=1)
def sleep(ctx: TaskContext, seconds: float) -> int:
    """In its second attempt it does not sleep."""
    begin(ctx)
    if ctx.attempt == 1:
        time.sleep(seconds)
    note("end", ctx)
    return ctx.attempt


@tasklib.task(max_retries=1)
def stubborn(ctx: TaskContext, seconds: float) -> int:
    """Refuses to be asked."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    begin(ctx)
    deadline = time.monotonic() + seconds
    while ctx.attempt == 1 and time.monotonic() < deadline:
        try:
            time.sleep(0.1)
        except BaseException:  # noqa: BLE001
            continue
    note("end", ctx)
    return ctx.attempt


@tasklib.task
def nap(ctx: TaskContext, seconds: float) -> None:
    begin(ctx)
    time.sleep(seconds)
    note("end", ctx)


@tasklib.task(max_retries=0)
def leave(ctx: TaskContext) -> None:
    begin(ctx)
    os._exit(3)


@tasklib.task
def chatter(ctx: TaskContext, lines: int, pause: float) -> int:
    begin(ctx)
    for number in range(lines):
        ctx.log.info("line %d", number)
        ctx.progress((number + 1) / lines, f"line {number}")
        time.sleep(pause)
    note("end", ctx)
    return ctx.fencing_token


@tasklib.task
def say_and_wait(ctx: TaskContext, seconds: float) -> None:
    ctx.progress(0.25, "a quarter")
    ctx.log.info("a quarter")
    begin(ctx)
    try:
        time.sleep(seconds)
    finally:
        ctx.log.info("cancelled: %s", ctx.cancelled)


@tasklib.task(max_retries=1)
def say_until_stopped(ctx: TaskContext) -> None:
    """Its first attempt goes on for as long as it is let; the second ends at once."""
    begin(ctx)
    if ctx.attempt > 1:
        ctx.progress(1.0, str(ctx.fencing_token))
        ctx.log.info("%d:0", ctx.fencing_token)
        note("end", ctx)
        return
    number = 0
    while True:
        try:
            ctx.log.info("%d:%d", ctx.fencing_token, number)
            number += 1
            ctx.progress(0.5, f"{ctx.fencing_token}:{number}")
            time.sleep(0.05)
        except BaseException:  # noqa: BLE001  it does not heed SIGTERM
            continue


@tasklib.task(max_retries=0)
def step_there(ctx: TaskContext) -> int:
    begin(ctx)
    return ctx.step(abs, -1)
