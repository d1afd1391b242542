"""Looking at processes from outside, and running workers that tests can end."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil

from tasklib import Task, TaskQueue
from tasklib.worker import Worker, WorkerSettings
from tests.fixtures.waiting import PATIENCE

OURS = re.compile(r"child_main|processes/orphan_killer\.py")


@contextmanager
def working(queue: TaskQueue, concurrency: int = 2, **settings: Any) -> Iterator[Worker]:
    """A worker on an event loop of its own, in a thread; stopped at the end, which must not take long."""
    settings = {"poll_interval_seconds": 0.05, "grace_seconds": 0.1, "signals": False} | settings
    started = threading.Event()
    found: list[tuple[asyncio.AbstractEventLoop, Worker]] = []
    failed: list[BaseException] = []

    async def work() -> None:
        worker = Worker(queue, WorkerSettings(concurrency=concurrency, **settings))
        found.append((asyncio.get_running_loop(), worker))
        started.set()
        await worker.run()

    def run() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:  # noqa: BLE001  raised again in the test
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    loop, worker = found[0]
    try:
        yield worker
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(worker.stop)
        thread.join(PATIENCE)
    if failed:
        raise failed[0]
    assert not thread.is_alive()


def read(queue: TaskQueue, task_id: UUID) -> Task:
    """The task, which must exist."""
    task = queue.get(task_id)
    assert task is not None
    return task


def pids_in(file: Path) -> list[int]:
    """The processes that tasks have written down."""
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def exists(pid: int) -> bool:
    """Whether the process is in the process table, be it as a zombie."""
    return psutil.pid_exists(pid)


def members_of(group: int) -> list[int]:
    """The processes of a process group."""
    return [pid for pid in psutil.pids() if group_of(pid) == group]


def group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def started_by(pid: int) -> set[int]:
    """The processes that a worker in this process has started and that are still there, zombies too."""
    found = set()
    for child in psutil.Process(pid).children():
        with suppress(psutil.NoSuchProcess):
            if child.status() == psutil.STATUS_ZOMBIE or OURS.search(" ".join([child.name(), *child.cmdline()])):
                found.add(child.pid)
    return found
