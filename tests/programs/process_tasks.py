"""Tasks for child processes; each child imports this module anew and finds the database in the environment."""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel

from tasklib import Abort, Middleware, Resource, Retry, Snooze, TaskContext, TaskQueue, WorkerState, current_context

time.sleep(float(os.environ.get("PROCESS_TASKS_SLOW", "0")))
queue = TaskQueue(os.environ.get("PROCESS_TASKS_URL", "sqlite:///:memory:"))


class Colour(StrEnum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Order(BaseModel):
    number: int
    placed: datetime


class Refused(Exception):
    """An error that only this module knows."""


@queue.on_startup
async def open_resources(state: WorkerState) -> None:
    state.loop = asyncio.get_running_loop()
    state.opened_by = os.getpid()


@queue.on_shutdown
def close_resources() -> None:
    if folder := os.environ.get("PROCESS_TASKS_FOLDER"):
        (Path(folder) / f"closed-{os.getpid()}").touch()


class Noting(Middleware):
    def before(self, ctx: TaskContext) -> None:
        ctx.state.noted = [f"before {ctx.task.name}"]


queue.add_middleware(Noting())


@queue.task(isolation="process")
def noop() -> None:
    pass


@queue.task(isolation="process")
def add(a: int, b: int = 1) -> int:
    return a + b


@queue.task(isolation="process", max_retries=0)
def mostly_quick(how: str, file: str) -> int:
    """Takes no time at all, but for one that dies or waits for a file."""
    match how:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "wait":
            while not Path(file).exists():
                time.sleep(0.01)
    return os.getpid()


@queue.task(isolation="process", max_retries=0)
def number(n: int, padding: str = "", file: str | None = None) -> int:
    """Takes no time at all, unless it waits for a file."""
    while file is not None and not os.path.exists(file):
        time.sleep(0.01)
    return n


@queue.task(isolation="process")
def types_of(when: datetime, key: UUID, colour: Colour, point: Point, order: Order) -> dict[str, Any]:
    given = (when, key, colour, point, order)
    return {"types": [type(each).__name__ for each in given], "back": [when, key, colour, point, order]}


@queue.task(isolation="process")
async def add_async(a: int, b: int, opened: Annotated[Any, Resource("loop")]) -> int:
    await asyncio.sleep(0)
    assert asyncio.get_running_loop() is opened
    return a + b


@queue.task(isolation="process")
def where(ctx: TaskContext) -> dict[str, Any]:
    assert current_context() is ctx
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "group": os.getpgrp(),
        "cwd": str(Path.cwd()),
        "path": sys.path,
        "opened_by": ctx.state.opened_by,
        "attempt": ctx.attempt,
        "name": ctx.task.name,
        "headers": dict(ctx.headers),
        "noted": ctx.state.noted,
    }


@queue.task(isolation="process")
def spin(pid_file: str) -> None:
    note(pid_file)
    while True:
        pass


@queue.task(isolation="process")
def clean_up(pid_file: str, note_file: str) -> None:
    """Its context is made when it has been asked to end already."""
    note(pid_file)
    try:
        while True:
            time.sleep(0.01)
    finally:
        write(note_file, f"cancelled={current_context().cancelled}")


@queue.task(isolation="process")
async def clean_up_async(pid_file: str, note_file: str, ctx: TaskContext) -> None:
    note(pid_file)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        write(note_file, f"cancelled={ctx.cancelled}")
        raise


@queue.task(isolation="process")
def ignore_sigterm(pid_file: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(pid_file)
    while True:
        pass


@queue.task(isolation="process")
def have_child(pid_file: str) -> None:
    """Starts one process by fork and one by exec, which both ignore SIGTERM, and waits for neither."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        note(pid_file)
        while True:
            time.sleep(1)
    subprocess.Popen([sys.executable, "-S", "-c", STUBBORN, pid_file])
    note(pid_file)
    while True:
        time.sleep(1)


@queue.task(isolation="process")
def hold_gil(pid_file: str, seconds: float) -> None:
    """Blocks in native code that does not let go of the interpreter."""
    note(pid_file)
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


@queue.task(isolation="process", max_retries=1)
def exit_at_once(code: int) -> None:
    os._exit(code)


@queue.task(isolation="process", max_retries=1)
def crash() -> None:
    ctypes.string_at(0)


@queue.task(isolation="process", max_retries=1, retry_on=(Refused,))
def kill_itself(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


@queue.task(isolation="process", memory_limit_mb=300, max_retries=0)
def eat_memory() -> int:
    kept = [bytearray(1 << 20) for _ in range(2000)]
    return len(kept)


@queue.task(isolation="process")
def eat(mib: int) -> int:
    return len([bytearray(1 << 20) for _ in range(mib)])


@queue.task(isolation="process", memory_limit_mb=300, max_retries=0)
def die_of_memory() -> None:
    """As native code does that cannot have memory."""
    kept = []
    try:
        while True:
            kept.append(bytearray(1 << 20))
    except MemoryError:
        os.abort()


@queue.task(isolation="process")
def report(ctx: TaskContext, go_on: str) -> None:
    for step in range(1000):
        ctx.progress(step / 2000)
    ctx.progress(0.5, "half")
    ctx.log("line of %s", "the task")
    ctx.log.warning("careful")
    while not Path(go_on).exists():
        time.sleep(0.01)


@queue.task(isolation="process")
def say(text: str) -> None:
    print(text)


@queue.task(isolation="process", max_retries=5, retry_on=(Refused,), abort_on=(KeyError,))
def fail(how: str) -> None:
    match how:
        case "retry_on":
            raise Refused("again")
        case "other":
            raise ValueError("not named")
        case "abort_on":
            raise KeyError("named")
        case "Retry":
            raise Retry(delay=77)
        case "Snooze":
            raise Snooze(delay=timedelta(seconds=88))
        case "Abort":
            raise Abort("enough")
        case "SystemExit":
            sys.exit("the task exits")
        case "result":
            return object()  # type: ignore[return-value]


@queue.task(isolation="process", max_retries=0)
def report_and_end(ctx: TaskContext) -> None:
    ctx.progress(0.9, "nearly")
    ctx.progress(1.0, "all of it")


@queue.task(isolation="process", transactional=True, max_retries=0)
def report_and_commit(ctx: TaskContext) -> None:
    ctx.progress(0.9, "nearly")
    ctx.progress(1.0, "all of it")


@queue.task(isolation="process", max_retries=0)
async def escape(how: str) -> str:
    await asyncio.sleep(0)
    raise {"cancel": asyncio.CancelledError, "interrupt": KeyboardInterrupt, "exit": SystemExit}[how](how)


@queue.task(isolation="process", transactional=True, max_retries=0)
def write_and_submit(table: str, text: str, die: bool, ctx: TaskContext) -> str:
    ctx.connection.execute(f"INSERT INTO {table} (text) VALUES ('{text}')")
    noop.submit()
    if die:
        os.kill(os.getpid(), signal.SIGKILL)
    return text


@queue.task(isolation="process", transactional=True, max_retries=0)
async def write_async(table: str, text: str, ctx: TaskContext) -> str:
    pending = ctx.connection.execute(f"INSERT INTO {table} (text) VALUES ('{text}')")
    if hasattr(pending, "__await__"):
        await pending
    return text


def handle(payload: Any) -> Any:
    return {"got": payload, "pid": os.getpid()}


queue.register_handler("handled", handle, isolation="process")


@queue.task
def innocent(pid_file: str) -> int:
    note(pid_file)
    return os.getpid()


@queue.task
async def innocent_async() -> int:
    return os.getpid()


@queue.task(max_retries=1)
def guilty() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def note(pid_file: str) -> None:
    """Write down this process, one line each."""
    with Path(pid_file).open("a") as file:
        file.write(f"{os.getpid()}\n")


def write(file: str, text: str) -> None:
    Path(file).write_text(text)


STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()}\\n")
time.sleep(99)
"""


def note_step(path: str, word: str) -> str:
    with Path(path).open("a") as file:
        file.write(f"{word} {os.getpid()}\n")
    return word


@queue.task(isolation="process")
def steps_in_a_child(ctx: TaskContext, path: str) -> list[str]:
    first = ctx.step(note_step, path, "first")
    ctx.sleep(2)
    return [first, ctx.step(note_step, path, "second")]


@queue.task(isolation="process")
async def awaited_steps_in_a_child(ctx: TaskContext, path: str) -> list[str]:
    first, second = await asyncio.gather(*[ctx.step(note_step, path, word) for word in ("first", "second")])
    await ctx.sleep(2)
    third = await ctx.options(transactional=True, name="third").step(note_step, path, "third")
    return [first, second, third]


@queue.task(isolation="process")
def restarts_in_a_child(ctx: TaskContext, path: str, left: int) -> list[str]:
    words = [ctx.step(note_step, path, f"{left} left")]
    if left:
        raise restarts_in_a_child.restart(path, left - 1)
    return words


@queue.task(isolation="process", max_retries=0)
def spends_in_a_child(ctx: TaskContext, cost: float) -> str:
    ctx.spend("calls", cost)
    ctx.options(name="more").spend("calls", 8)
    return "spent"
