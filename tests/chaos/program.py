"""The program under attack: tasks that note each start and end in a file."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time

import tasklib
from tasklib import TaskContext
from tests.chaos.ledger import LEDGER, note

GATE = os.environ[LEDGER] + ".gate"


@tasklib.task
async def quick(ctx: TaskContext) -> None:
    note("start", ctx)
    note("end", ctx)


@tasklib.task
async def nap(ctx: TaskContext, seconds: float) -> None:
    note("start", ctx)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("cancel", ctx)
        raise
    note("end", ctx)


@tasklib.task
def work(ctx: TaskContext, seconds: float) -> None:
    note("start", ctx)
    time.sleep(seconds)
    note("end", ctx)


@tasklib.task
async def gated(ctx: TaskContext) -> None:
    """Ends when the test opens the gate."""
    note("start", ctx)
    while not os.path.exists(GATE):  # noqa: ASYNC110, ASYNC240  another process opens it
        await asyncio.sleep(0.01)
    note("end", ctx)


@tasklib.task
def gated_thread(ctx: TaskContext) -> None:
    note("start", ctx)
    while not os.path.exists(GATE):
        time.sleep(0.01)
    note("end", ctx)


@tasklib.task(isolation="process")
def gated_apart(ctx: TaskContext) -> None:
    note("start", ctx)
    while not os.path.exists(GATE):
        time.sleep(0.01)
    note("end", ctx)


@tasklib.task
def flaky(ctx: TaskContext) -> None:
    """Fails in its first attempt."""
    note("start", ctx)
    if ctx.attempt == 1:
        raise ConnectionError("the first time never works")
    note("end", ctx)


@tasklib.task(transactional=True)
def effect(ctx: TaskContext) -> None:
    """Has an effect in the queue's own database, which must happen exactly once."""
    note("start", ctx)
    ctx.connection.execute(os.environ["CHAOS_EFFECT"], (str(ctx.task.id),))
    note("end", ctx)


@tasklib.task(isolation="process")
def apart(ctx: TaskContext, seconds: float) -> None:
    """Runs in a child process."""
    note("start", ctx)
    time.sleep(seconds)
    note("end", ctx)


@tasklib.task(isolation="process")
def spin(ctx: TaskContext, seconds: float) -> None:
    """Computes in a child process and never looks up."""
    note("start", ctx)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pass
    note("end", ctx)


@tasklib.task(isolation="process")
def exit_apart(ctx: TaskContext) -> None:
    """Ends its child process without a word."""
    note("start", ctx)
    os._exit(3)


@tasklib.task(isolation="process")
def kill_apart(ctx: TaskContext) -> None:
    """Has its child process killed."""
    note("start", ctx)
    os.kill(os.getpid(), signal.SIGKILL)


@tasklib.task(isolation="process")
def kill_parent(ctx: TaskContext) -> None:
    """Kills the worker whose child it runs in."""
    note("start", ctx)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)  # until it is ended with its worker


@tasklib.task
async def block_loop(ctx: TaskContext, seconds: float) -> None:
    """Keeps the event loop from turning."""
    note("start", ctx)
    time.sleep(seconds)  # noqa: ASYNC251  that is the point
    note("end", ctx)


@tasklib.task
def hold_gil(ctx: TaskContext, seconds: int) -> None:
    """Keeps every thread of the process from running, as a long call in C does."""
    note("start", ctx)
    ctypes.PyDLL(None).sleep(seconds)
    note("end", ctx)


@tasklib.task
def exit_worker(ctx: TaskContext) -> None:
    """Ends its process without a word."""
    note("start", ctx)
    os._exit(3)


@tasklib.task
async def cancel_everything(ctx: TaskContext) -> None:
    """Cancels every asyncio task of its process, the worker's too."""
    note("start", ctx)
    for task in asyncio.all_tasks():
        task.cancel()


@tasklib.task
async def stop_the_loop(ctx: TaskContext) -> None:
    """Stops the event loop that everything in its process runs on."""
    note("start", ctx)
    asyncio.get_running_loop().stop()


@tasklib.task
def kill_worker(ctx: TaskContext) -> None:
    """Is killed, as by the kernel for want of memory."""
    note("start", ctx)
    os.kill(os.getpid(), signal.SIGKILL)


@tasklib.task
async def stubborn(ctx: TaskContext, seconds: float) -> None:
    """Refuses to be cancelled."""
    note("start", ctx)
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue
    note("end", ctx)
