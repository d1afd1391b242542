"""What workflows cost beside plain tasks, on PostgreSQL: fan-out and fan-in, waking, and recorded steps.

    python -m bench workflows
    python -m bench workflows --children 2000 --rounds 20 --steps 200

Each figure stands beside the plain one of the same run: children beside a drain of as many tasks, recorded steps beside
submits one after the other.  The promises: children at 0.95 of the drain, the last child's end to its parent running in
20 ms and an event to its workflow running in 10 ms at the median, steps of one workflow at 0.8 and of many at 8 times
the rate of submits.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from bench.report import save, show
from bench.server import durable_server
from tasklib import AsyncTaskContext, Config, TaskQueue, injected

CONCURRENCY, WORKFLOWS, FEW = 100, 50, 10
SETTLED_SECONDS = 0.2


class Bench:
    """A queue with the tasks that are measured."""

    def __init__(self, url: str) -> None:
        self.queue = TaskQueue(Config(url))
        self.moments: list[tuple[str, float]] = []
        self.left, self.drained = 0, asyncio.Event()
        queue, note = self.queue, self.note

        @queue.task
        async def plain(n: int) -> None:
            self.left -= 1
            if not self.left:
                self.drained.set()

        @queue.task
        async def child(n: int) -> None:
            note("child")

        @queue.task
        async def fan(count: int, ctx: AsyncTaskContext = injected()) -> int:
            done = await ctx.map(plain, ({"n": n} for n in range(count)))
            return done.total

        @queue.task
        async def parent(ctx: AsyncTaskContext = injected()) -> None:
            await ctx.map(child, [{"n": n} for n in range(FEW)])
            note("parent")

        @queue.task
        async def waiting(event: str, ctx: AsyncTaskContext = injected()) -> None:
            await ctx.wait(event, int)
            note("woken")

        @queue.task
        async def stepping(steps: int, ctx: AsyncTaskContext = injected()) -> None:
            for _ in range(steps):
                await ctx.step(nothing)

        self.plain, self.fan, self.parent, self.waiting, self.stepping = plain, fan, parent, waiting, stepping

    def note(self, what: str) -> None:
        """What happens now."""
        self.moments.append((what, time.perf_counter()))

    def last(self, what: str) -> float:
        """When it happened last."""
        return max(moment for found, moment in self.moments if found == what)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """With a worker."""
        running = asyncio.ensure_future(self.queue.arun(concurrency=CONCURRENCY, signals=False))
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])


async def nothing() -> None:
    """What a step does here."""


async def drain(bench: Bench, count: int) -> float:
    """Seconds to run as many plain tasks, which wait when the worker begins."""
    await bench.plain.asubmit_many({"n": n} for n in range(count))
    bench.left, bench.drained = count, asyncio.Event()
    began = time.perf_counter()
    async with bench.working():
        await bench.drained.wait()
        return time.perf_counter() - began


async def fan_in(bench: Bench, count: int) -> tuple[float, float]:
    """Seconds to run as many children and then their parent: all in all, and without storing them."""
    task_id = await bench.fan.asubmit(count)
    began = time.perf_counter()
    await bench.queue.aprocess_batch(1)  # stores the children, and waits for them
    stored = time.perf_counter()
    async with bench.working():
        task = await bench.queue.await_(task_id, timeout=3600)
    ended = time.perf_counter()
    assert task.result == {"value": count}, task.error
    return ended - began, ended - stored


async def told_after(bench: Bench, rounds: int) -> float:
    """Milliseconds from the end of the last child to its parent running, at the median."""
    late: list[float] = []
    async with bench.working():
        for _ in range(rounds):
            bench.moments.clear()
            task = await bench.queue.await_(await bench.parent.asubmit(), timeout=60)
            assert task.state == "completed", task.error
            late.append((bench.last("parent") - bench.last("child")) * 1e3)
    return median(late)


async def woken_after(bench: Bench, rounds: int) -> float:
    """Milliseconds from an event to its workflow running on an idle worker, at the median."""
    late: list[float] = []
    async with bench.working():
        for number in range(rounds):
            task_id = await bench.waiting.asubmit(f"event-{number}")
            await asyncio.sleep(SETTLED_SECONDS)  # it waits, and the worker has nothing to do
            began = time.perf_counter()
            await bench.queue.aemit(f"event-{number}", 1)
            await bench.queue.await_(task_id, timeout=60)
            late.append((bench.last("woken") - began) * 1e3)
    return median(late)


async def submits(bench: Bench, count: int) -> float:
    """Submits in a second, one after the other."""
    return count / await timed(lambda: one_by_one(bench, count))


async def one_by_one(bench: Bench, count: int) -> None:
    """Submit so many, each when the one before is stored."""
    for n in range(count):
        await bench.plain.options(delay_seconds=3600).asubmit(n)


async def recorded(bench: Bench, workflows: int, steps: int) -> float:
    """Steps recorded in a second, by so many workflows at once."""
    ids = await bench.stepping.asubmit_many([{"steps": steps}] * workflows)

    async def work() -> None:
        async with bench.working():
            await asyncio.gather(*[bench.queue.await_(task_id, timeout=3600) for task_id in ids])

    return workflows * steps / await timed(work)


async def timed(work: Callable[[], Awaitable[None]]) -> float:
    """Seconds that it takes."""
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def measure(url: str, options: argparse.Namespace) -> dict[str, float]:
    """All figures of one run."""
    bench = Bench(url)
    async with bench.queue:
        await drain(bench, 1000)  # warm
        plain = await drain(bench, options.children)
        whole, children = await fan_in(bench, options.children)
        found = {
            "plain drain, tasks/s": options.children / plain,
            "children fanned in, tasks/s": options.children / children,
            "children / plain": plain / children,
            "children stored and fanned in, tasks/s": options.children / whole,
            "last child's end to parent, ms": await told_after(bench, options.rounds),
            "event to workflow, ms": await woken_after(bench, options.rounds),
            "submits one by one, /s": await submits(bench, options.steps),
            "steps of one workflow, /s": await recorded(bench, 1, options.steps),
            "steps of many, /s": await recorded(bench, WORKFLOWS, options.steps // 10 or 1),
        }
        found["steps of one / submits"] = found["steps of one workflow, /s"] / found["submits one by one, /s"]
        found["steps of many / submits"] = found["steps of many, /s"] / found["submits one by one, /s"]
        return found


PROMISED: dict[str, tuple[float, float]] = {
    "children / plain": (0.95, float("inf")),
    "last child's end to parent, ms": (0.0, 20.0),
    "event to workflow, ms": (0.0, 10.0),
    "steps of one / submits": (0.8, float("inf")),
    "steps of many / submits": (8.0, float("inf")),
}


def run(options: argparse.Namespace) -> bool:
    """Whether the promises were kept."""
    logging.disable(logging.WARNING)
    with durable_server(options.postgres) as server:
        found = asyncio.run(measure(server.url, options))
    kept = {name: low <= found[name] <= high for name, (low, high) in PROMISED.items()}
    rows = [
        [name, f"{value:,.2f}", {True: "yes", False: "no", None: ""}[kept.get(name)]] for name, value in found.items()
    ]
    show(f"workflows, {options.children:,} children", ["", "measured", "as promised"], rows)
    save(options.save, {"figures": found, "kept": kept})
    return all(kept.values())


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument("--children", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=100, help="how often a wake-up is measured")
    parser.add_argument("--steps", type=int, default=2000, help="steps of one workflow, and submits beside them")
    parser.add_argument("--save", type=Path, help="write the figures as JSON")
