"""Everything that could make two runs of a seed differ, under control: clocks, random numbers, ids and threads."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from unittest import mock
from uuid import UUID

import uuid_utils.compat

from tasklib.core.time.timing import Drive, Runs, Steps, SystemTiming
from tasklib.core.time.virtual_time import _Task
from tasklib.storage.operations.workflows import facts
from tasklib.worker import worker as worker_module
from tasklib.worker.execution import child_processes, threads
from tasklib.worker.upkeep import retention
from tests.simulation.history import START
from tests.simulation.loop import CURRENT, VirtualLoop
from tests.simulation.server import EPOCH


@contextmanager
def controlled(loop: VirtualLoop, seed: int) -> Generator[None]:
    """Inside, time is the loop's, and everything random comes from the seed."""
    numbers = random.Random(f"{seed} ids")
    before = random.getstate()
    with ExitStack() as stack:
        for target, name, value in (
            (time, "monotonic", loop.time),
            (time, "time", lambda: EPOCH.timestamp() + loop.now - START + _wall_offset()),
            (os, "urandom", numbers.randbytes),
            (uuid_utils.compat, "uuid7", _Ids(loop, numbers).next),
            (worker_module, "_resident_bytes", lambda: None),
            (child_processes.ChildProcesses, "accepts", lambda *_: False),
            (threads.Threads, "_start_thread", lambda executor: _Thread(executor)),
            (facts, "MARGIN_SECONDS", 5.0),
            (retention, "FACTS_EVERY_SECONDS", 10.0),
        ):
            stack.enter_context(mock.patch.object(target, name, value))
        random.seed(f"{seed} production")
        try:
            yield
        finally:
            random.setstate(before)


def _wall_offset() -> float:
    """By how much the clock on the wall of who asks is wrong."""
    process = CURRENT.get()
    return 0.0 if process is None else process.wall_offset


class LoopTiming(SystemTiming):
    """The time of the simulated process that asks; what threads of their own drive elsewhere is an asyncio task."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        """What the clock of the process shows."""
        return self._loop.time()

    def drive(self, name: str, steps: Steps, database: Runs) -> Drive:
        """Take the steps in an asyncio task."""
        return _Task(name, steps, database, self)


class _Ids:
    """Makes UUIDv7 by the virtual clock."""

    def __init__(self, loop: VirtualLoop, numbers: random.Random) -> None:
        self._loop = loop
        self._numbers = numbers

    def next(self) -> UUID:
        """The next id."""
        milliseconds = int((EPOCH.timestamp() + self._loop.now - START) * 1000)
        rest = self._numbers.getrandbits(74)
        return UUID(int=milliseconds << 80 | 7 << 76 | (rest >> 62) << 64 | 2 << 62 | rest & (1 << 62) - 1)


DURATION = "simulated seconds"


class _Thread:
    """A thread of an executor: it calls functions at once, and their outcomes arrive as late as they say."""

    def __init__(self, executor: threads.Threads) -> None:
        self._executor = executor
        executor._made += 1
        self.put(True)

    def put(self, goes_on: bool) -> None:
        """Make the next call, if there is one."""
        executor = self._executor
        if not goes_on:
            return
        if not executor._jobs:
            if not executor._closed:
                executor._idle.append(self)  # type: ignore[arg-type]
            return
        returned = threads.make_call(executor._jobs.popleft())
        seconds = getattr(threading.current_thread(), DURATION, 0.0)
        executor._note(returned[0].definition.name, seconds)
        asyncio.get_running_loop().call_later(seconds, self._deliver, returned)

    def _deliver(self, returned: threads.Returned) -> None:
        self._executor._returned.append(returned)
        self._executor._ask(asyncio.get_running_loop())
        self.put(True)
