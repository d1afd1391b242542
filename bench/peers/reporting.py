"""Reports of a peer's program to the bench, a line of JSON each: how many tasks have run, how long submitting took."""

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


def report(**what: object) -> None:
    """Write one line to the bench, in one piece even if several processes write."""
    os.write(1, (json.dumps({"pid": os.getpid(), **what}) + "\n").encode())


class Tally:
    """Counts tasks at no cost to them: a timer reports the count."""

    def __init__(self) -> None:
        self.count = 0

    def report_since(self, reported: int) -> int:
        """Report the count unless it was reported last; returns what is reported now."""
        # Read once: threads go on counting while the line is written, and what no line named is not reported yet.
        count = self.count
        if count != reported:
            report(ran=count)
        return count

    async def on_loop(self) -> None:
        """Report from the event loop until cancelled."""
        reported = 0
        while True:
            reported = self.report_since(reported)
            await asyncio.sleep(TICK_SECONDS)

    def in_thread(self) -> None:
        """Report from a thread for as long as the process lives."""

        def run() -> None:
            reported = 0
            while True:
                reported = self.report_since(reported)
                time.sleep(TICK_SECONDS)

        threading.Thread(target=run, daemon=True).start()


def report_latency(submitted: float) -> None:
    """Report that a task which was submitted at this moment starts now."""
    report(latency=time.time() - submitted)


def time_calls(call: Callable[[int], object], count: int) -> None:
    """Call one after the other, and report how long it took."""
    each: list[float] = []
    for number in range(_warm_up(count)):
        call(number)
    started = time.perf_counter(), time.process_time()
    for number in range(count):
        before = time.perf_counter()
        call(number)
        each.append(time.perf_counter() - before)
    _report_times(started, count, each)


async def atime_calls(call: Callable[[int], Awaitable[object]], count: int, at_once: int = 1) -> None:
    """The same with awaitable calls, `at_once` of them at a time."""
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
    _report_times(started, count, each)


def pace(call: Callable[[float], object], count: int) -> None:
    """Submit in even steps, each with the moment at which its submission begins."""
    for _ in range(count):
        time.sleep(PACE_SECONDS)
        call(time.time())


async def apace(call: Callable[[float], Awaitable[object]], count: int, seconds: float = PACE_SECONDS) -> None:
    """The same with awaitable calls."""
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


def _report_times(started: tuple[float, float], count: int, each: list[float]) -> None:
    seconds, cpu = time.perf_counter() - started[0], time.process_time() - started[1]
    ordered = sorted(each)
    report(
        done=count,
        seconds=seconds,
        p50=ordered[len(ordered) // 2],
        p99=ordered[int(len(ordered) * 0.99)],
        cpu=cpu,
    )
