"""What `tasklib bench` measures: submitting, draining and waking up, in a schema or file of its own."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tasklib.core.config import Config
from tasklib.queue import TaskQueue
from tasklib.service.administration import Administration

AT_ONCE = 100
CONCURRENCY = 100
PACE_SECONDS = 0.05
WAKE_UPS = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """How many tasks each part of a measurement takes."""

    bulk: int

    @property
    def few(self) -> int:
        """Tasks that are submitted one by one."""
        return max(50, self.bulk // 40)

    @property
    def many(self) -> int:
        """Tasks that are submitted many at once."""
        return 10 * self.few

    @property
    def drained(self) -> int:
        """All that are submitted, with one to connect before each of the first two parts."""
        return (1 + self.few) + (1 + self.many) + self.bulk

    @property
    def steps(self) -> int:
        """Submissions and runs in all."""
        return 2 * self.drained + WAKE_UPS


async def measure(config: Config, plan: Plan, on_progress: Callable[[int], None]) -> dict[str, dict[str, float]]:
    """Every figure by what was measured; `on_progress` is called with how many of the plan's steps are done."""
    progress = _Progress(plan.steps, on_progress)
    async with _own_place(config) as queue:
        ran: list[float] = []
        woken: list[float] = []
        all_ran, all_woken = asyncio.Event(), asyncio.Event()

        @queue.task(name="noop")
        async def noop(n: int) -> None:
            ran.append(time.monotonic())
            progress.add()
            if len(ran) == plan.drained:
                all_ran.set()

        @queue.task(name="timed")
        async def timed(t: float) -> None:
            woken.append(time.monotonic() - t)
            progress.add()
            if len(woken) == WAKE_UPS:
                all_woken.set()

        async def submit(n: int) -> None:
            await noop.asubmit(n)
            progress.add()

        def rows() -> Iterator[dict[str, int]]:
            for n in range(plan.bulk):
                yield {"n": n}
                progress.add()

        found = {
            "submit, one by one": await _timed(submit, plan.few, at_once=1),
            f"submit, {AT_ONCE} at once": await _timed(submit, plan.many, at_once=AT_ONCE),
        }
        started = time.monotonic()
        await noop.asubmit_many(rows(), keep_ids=False)
        found["submit in bulk"] = {"per_second": plan.bulk / (time.monotonic() - started)}
        async with _working(queue):
            await all_ran.wait()
            while await queue.acount(state=["pending", "running"]):  # noqa: ASYNC110  the last commit sends no event
                await asyncio.sleep(0.01)
            found["drain"] = {"per_second": (plan.drained - 1) / (time.monotonic() - ran[0])}
            for _ in range(WAKE_UPS):
                await asyncio.sleep(PACE_SECONDS)
                await timed.asubmit(time.monotonic())
            await all_woken.wait()
            found["wake an idle worker"] = _spread(woken)
    return found


@asynccontextmanager
async def _working(queue: TaskQueue) -> AsyncGenerator[None]:
    worker = asyncio.ensure_future(queue.arun(concurrency=CONCURRENCY, signals=False))
    try:
        yield
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


class _Progress:
    """Reports one step in a hundred: drawing a bar for each would be part of what is measured."""

    def __init__(self, total: int, on_progress: Callable[[int], None]) -> None:
        self._total = total
        self._every = max(1, total // 100)
        self._on_progress = on_progress
        self._done = 0

    def add(self) -> None:
        self._done += 1
        if self._done % self._every == 0 or self._done == self._total:
            self._on_progress(self._done)


async def _timed(submit: Callable[[int], Awaitable[object]], count: int, *, at_once: int) -> dict[str, float]:
    each: list[float] = []

    async def row(numbers: range) -> None:
        for number in numbers:
            before = time.monotonic()
            await submit(number)
            each.append(time.monotonic() - before)

    await submit(0)  # connects
    started = time.monotonic()
    await asyncio.gather(*(row(range(first, count, at_once)) for first in range(at_once)))
    return {"per_second": count / (time.monotonic() - started), **_spread(each)}


def _spread(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {"p50_ms": median(ordered) * 1e3, "p99_ms": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1e3}


@asynccontextmanager
async def _own_place(config: Config) -> AsyncGenerator[TaskQueue]:
    """A queue in a schema or file of its own, which is removed afterwards."""
    name = f"tasklib_bench_{os.urandom(4).hex()}"
    own = _own_file(config, name) if config.is_sqlite else config.with_(db_schema=name)
    queue = TaskQueue(own)
    try:
        yield queue
    finally:
        if not own.is_sqlite:
            await Administration(queue).adrop_schema()
        await queue.aclose()
        if own.is_sqlite:
            _remove(own.database_url.removeprefix("sqlite:///"))


def _own_file(config: Config, name: str) -> Config:
    path = config.database_url.removeprefix("sqlite:///")
    if path == ":memory:":
        return config
    return config.with_(database_url=f"sqlite:///{Path(path).parent / name}.db")


def _remove(path: str) -> None:
    for suffix in ("", "-wal", "-shm", "-lock"):
        with suppress(FileNotFoundError):
            Path(f"{path}{suffix}").unlink()
