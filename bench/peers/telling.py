"""What a peer's program tells the bench, a line of JSON each: how many tasks have run, how long submitting took."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable

TICK_SECONDS = float(os.environ.get("BENCH_TICK_SECONDS", "0.02"))
PACE_SECONDS = 0.05
AT_ONCE = 100
WARM_UP = 200
"""Calls before it counts: a program that submits all day has imported everything, is connected, and its statements are
ready."""


def tell(**what: object) -> None:
    """One line to the bench, whole even if several processes speak."""
    os.write(1, (json.dumps({"pid": os.getpid(), **what}) + "\n").encode())


class Tally:
    """Counts tasks without costing them anything: the count is told by a timer."""

    def __init__(self) -> None:
        self.count = 0

    def tell_since(self, told: int) -> int:
        """Tell the count unless it is what was told last; returns what is told now."""
        # Read once: threads count on while the line is written, and what was never told must not be taken as told.
        count = self.count
        if count != told:
            tell(ran=count)
        return count

    async def on_loop(self) -> None:
        """Tell from the event loop until cancelled."""
        told = 0
        while True:
            told = self.tell_since(told)
            await asyncio.sleep(TICK_SECONDS)

    def in_thread(self) -> None:
        """Tell from a thread for as long as the process lives."""

        def run() -> None:
            told = 0
            while True:
                told = self.tell_since(told)
                time.sleep(TICK_SECONDS)

        threading.Thread(target=run, daemon=True).start()


def tell_latency(submitted: float) -> None:
    """A task that was submitted at this moment starts now."""
    tell(latency=time.time() - submitted)


def time_calls(call: Callable[[int], object], count: int) -> None:
    """Call one after the other, and tell how long it took."""
    each: list[float] = []
    for number in range(_warm_up(count)):
        call(number)
    started = time.perf_counter(), time.process_time()
    for number in range(count):
        before = time.perf_counter()
        call(number)
        each.append(time.perf_counter() - before)
    _tell_times(started, count, each)


async def atime_calls(call: Callable[[int], Awaitable[object]], count: int, at_once: int = 1) -> None:
    """The same awaiting, in so many rows at once."""
    each: list[float] = []

    async def row(numbers: range) -> None:
        for number in numbers:
            before = time.perf_counter()
            await call(number)
            each.append(time.perf_counter() - before)

    async def rows(total: int) -> None:
        await asyncio.gather(*(row(range(first, total, at_once)) for first in range(at_once)))

    await rows(_warm_up(count))
    each.clear()
    started = time.perf_counter(), time.process_time()
    await rows(count)
    _tell_times(started, count, each)


def pace(call: Callable[[float], object], count: int) -> None:
    """Submit in even steps, each with the moment at which its submission begins."""
    for _ in range(count):
        time.sleep(PACE_SECONDS)
        call(time.time())


async def apace(call: Callable[[float], Awaitable[object]], count: int, seconds: float = PACE_SECONDS) -> None:
    """The same awaiting."""
    for _ in range(count):
        await asyncio.sleep(seconds)
        await call(time.time())


def given() -> tuple[str, str, int]:
    """Command, address and number from the command line."""
    return sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0


def chunks(count: int, size: int = 1000) -> list[range]:
    """The numbers below count in ranges of a size."""
    return [range(first, min(first + size, count)) for first in range(0, count, size)]


def _warm_up(count: int) -> int:
    return WARM_UP if count > 1 else 0


def _tell_times(started: tuple[float, float], count: int, each: list[float]) -> None:
    seconds, cpu = time.perf_counter() - started[0], time.process_time() - started[1]
    ordered = sorted(each)
    tell(
        done=count,
        seconds=seconds,
        p50=ordered[len(ordered) // 2],
        p99=ordered[int(len(ordered) * 0.99)],
        cpu=cpu,
    )
