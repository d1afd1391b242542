"""The way of one coroutine through a worker is the one that ARCHITECTURE.md tells, and no longer."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import tasklib
from tasklib import TaskQueue
from tasklib.worker import Worker, WorkerSettings
from tools.problems import ROOT

PACKAGE = Path(tasklib.__file__).parent
MOST_STOPS = 18
MOST_MODULES = 10
MOST_FUNCTIONS = 40
"""Of the worker, between the answer to a claim and the write of the end, what is only asked on the way included."""

Stop = tuple[str, str]


def documented() -> list[Stop]:
    """The stops that the page names."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.split("from its claim to its end**", 1)[1].split("```text\n", 1)[1].split("```", 1)[0]
    return [(line.split()[0], line.split()[1]) for line in table.splitlines()]


def stop_of(frame: FrameType) -> Stop | None:
    """The function, if it is one of ours that has a name."""
    code = frame.f_code
    if not code.co_filename.startswith(str(PACKAGE)) or code.co_name.startswith("<"):
        return None
    return str(Path(code.co_filename).relative_to(PACKAGE)), code.co_qualname


def callers_of(frame: FrameType) -> list[Stop]:
    found = list[Stop]()
    caller = frame.f_back
    while caller is not None:
        stop, caller = stop_of(caller), caller.f_back
        if stop is not None:
            found.append(stop)
    return found


async def test_a_coroutine_walks_as_the_architecture_tells(tmp_path: Path) -> None:
    queue = TaskQueue(f"sqlite:///{tmp_path / 'tasks.db'}")

    @queue.task
    async def job(n: int) -> int:
        return n

    await queue.amigrate()
    task_id = await job.asubmit(1)
    walk, entered = documented(), list[Stop]()
    callers: dict[Stop, list[Stop]] = {}

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        stop = stop_of(frame)
        if event == "call" and stop is not None:
            entered.append(stop)
            if stop in walk:
                callers.setdefault(stop, callers_of(frame))

    worker = Worker(queue, WorkerSettings(concurrency=2, signals=False))
    sys.setprofile(trace)
    working = asyncio.ensure_future(worker.run())
    await queue.await_(task_id, timeout=180)
    sys.setprofile(None)
    worker.stop()
    await working
    await queue.aclose()

    claimed = entered.index(walk[0])
    assert [stop for stop in dict.fromkeys(entered[claimed:]) if stop in walk] == walk
    assert len(walk) <= MOST_STOPS
    assert len({module for module, _ in walk}) <= MOST_MODULES
    # The page leaves no function out that leads from one stop to the next; above all of them is the worker's main loop.
    loop = callers[walk[0]]
    assert {stop: [each for each in callers[stop] if each not in (*walk, *loop)] for stop in walk} == {
        stop: [] for stop in walk
    }
    held = entered.index(("worker/execution/runner.py", "Runner.hold"))
    written = entered.index(("worker/recording/finisher.py", "Finisher._persist"))
    between = {stop for stop in entered[held:written] if stop[0].startswith(("worker/execution", "worker/recording"))}
    assert len(between) <= MOST_FUNCTIONS, sorted(between)
