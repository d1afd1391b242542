"""Waiting for a task's end: notified by the database, and polled in case a notification is lost."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Generator
from typing import TypeAlias
from uuid import UUID

from tasklib.core.numbers import is_number
from tasklib.core.task import Task
from tasklib.core.time.timing import Timing
from tasklib.errors import ConfigurationError, TaskNotFound, WaitTimeout
from tasklib.queue.base import QueueBase
from tasklib.storage.operations.tasks import get_task, watch_task
from tasklib.storage.statement import Operation

LOOK_SECONDS = 1.0

Look: TypeAlias = Callable[[], Operation[Task | None]]
Steps: TypeAlias = Generator[Look | float, Task | None, Task]


def wait_blocking(queue: QueueBase, task_id: UUID, timeout: float | None) -> Task:
    """The finished task, blocking this thread until then."""
    woken = threading.Event()
    stop = queue.database.subscribe(_listener(task_id, woken.set))
    try:
        steps = _wait(queue.timing, task_id, timeout)
        step = next(steps)
        while True:
            if isinstance(step, int | float):
                _refuse_to_block_a_worker(queue)
                woken.wait(step)
                woken.clear()
                step = steps.send(None)
            else:
                step = steps.send(queue.database.run(step))
    except StopIteration as stopped:
        finished: Task = stopped.value
        return finished
    finally:
        stop()


async def wait_async(queue: QueueBase, task_id: UUID, timeout: float | None) -> Task:
    """The finished task, awaited."""
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(woken.set)

    stop = await asyncio.to_thread(queue.database.subscribe, _listener(task_id, wake))
    try:
        steps = _wait(queue.timing, task_id, timeout)
        step = next(steps)
        while True:
            if isinstance(step, int | float):
                await queue.timing.wait(woken, step)
                woken.clear()
                step = steps.send(None)
            else:
                step = steps.send(await queue.database.arun(step))
    except StopIteration as stopped:
        finished: Task = stopped.value
        return finished
    finally:
        stop()


def _listener(task_id: UUID, wake: Callable[[], object]) -> Callable[[str], None]:
    interesting = ("changed", f"done:{task_id}")

    def listen(event: str) -> None:
        if event in interesting:
            wake()

    return listen


def _refuse_to_block_a_worker(queue: QueueBase) -> None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    if loop in queue.worker_loops:
        raise ConfigurationError(
            "wait() blocks, and here it would block the event loop on which a worker runs; await it instead: "
            "`await task_id.await_(...)` or `await queue.await_(...)`"
        )


def _wait(timing: Timing, task_id: UUID, timeout: float | None) -> Steps:
    """Reads to make and seconds to wait until the task is finished; a notification ends a wait early."""
    # Neither NaN, after which no time is too late, nor what is beyond every clock.
    if timeout is not None and not (is_number(timeout) and (timeout < 1e10 or timeout == math.inf)):
        raise ConfigurationError(f"timeout is a number of seconds, or None to wait without an end; got {timeout!r}")
    deadline = None if timeout is None else timing.monotonic() + timeout
    look: Look = lambda: watch_task(task_id)  # noqa: E731
    while True:
        task = yield look
        if task is None:
            raise TaskNotFound(task_id)
        if task.completed_at is not None:
            return task
        remaining = LOOK_SECONDS if deadline is None else deadline - timing.monotonic()
        if remaining <= 0:
            raise WaitTimeout(task_id, timeout or 0.0, task.state)
        yield min(remaining, LOOK_SECONDS)
        look = lambda: get_task(task_id)  # noqa: E731
