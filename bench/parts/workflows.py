"""What workflows cost beside plain tasks, on PostgreSQL: fan-out and fan-in, waking, and recorded steps.

    python -m bench workflows
    python -m bench workflows --only fan --children 20000 --pairs 5
    python -m bench workflows --only wake steps --rounds 20 --steps 200

Each figure stands beside the plain one of the same run, measured by turns: children beside a drain of as many tasks,
waking beside a task that is submitted to an idle worker, recorded steps beside submits one after the other.  Ratios are
given by the clock and by CPU, of this process and of the server, which another load on the machine changes less.  The
promises: children at 0.95 of the drain, the last child's end to its parent running in 20 ms and an event to its
workflow running in 10 ms at the median, steps of one workflow at 0.8 and of many at 8 times the rate of submits.  No
part takes more than `--seconds` by much: it stops after the pair or round that is then under way.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import psutil

from bench.report import save, show
from bench.server import durable_server, tree_cpu_seconds
from tasklib import AsyncTaskContext, Config, TaskQueue, injected
from tools.postgres import Server

CONCURRENCY, FEW = 200, 10
SETTLED_SECONDS = 0.2
PARTS: Final = ("fan", "wake", "steps")
INFINITE = float("inf")


@dataclass(frozen=True, slots=True)
class Cost:
    """What one piece of work took."""

    seconds: float
    client: float
    server: float

    @property
    def cpu(self) -> float:
        """Seconds of CPU, of this process and of the server."""
        return self.client + self.server


class Bench:
    """A queue with the tasks that are measured."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.queue = TaskQueue(Config(server.url))
        self.moments: list[tuple[str, float]] = []
        self.awaited = "", asyncio.Event()
        self.left, self.drained = 0, asyncio.Event()
        queue, note = self.queue, self.note

        @queue.task
        async def plain(n: int) -> None:
            self.left -= 1
            if not self.left:
                self.drained.set()

        @queue.task
        async def noted(what: str) -> None:
            note(what)

        @queue.task
        async def fan(count: int, ctx: AsyncTaskContext = injected()) -> int:
            done = await ctx.map(plain, ({"n": n} for n in range(count)))
            return done.total

        @queue.task
        async def parent(ctx: AsyncTaskContext = injected()) -> None:
            await ctx.map(noted, [{"what": "child"}] * FEW)
            note("parent")

        @queue.task
        async def waiting(event: str, ctx: AsyncTaskContext = injected()) -> None:
            await ctx.wait(event, int)
            note("woken")

        @queue.task
        async def stepping(steps: int, ctx: AsyncTaskContext = injected()) -> None:
            for _ in range(steps):
                await ctx.step(nothing)

        self.plain, self.noted, self.fan = plain, noted, fan
        self.parent, self.waiting, self.stepping = parent, waiting, stepping

    def note(self, what: str) -> None:
        """What happens now."""
        self.moments.append((what, time.perf_counter()))
        if what == self.awaited[0]:
            self.awaited[1].set()

    async def late(self, what: str, began: float) -> float:
        """Milliseconds until it happens, waited for without a query."""
        await self.awaited[1].wait()
        return (self.last(what) - began) * 1e3

    def expect(self, what: str) -> float:
        """Wait for this from now on; when that is."""
        self.moments.clear()
        self.awaited = what, asyncio.Event()
        return time.perf_counter()

    def last(self, what: str) -> float:
        """When it happened last."""
        return max(moment for found, moment in self.moments if found == what)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """With a worker, which has recorded all ends when this is over."""
        running = asyncio.ensure_future(self.queue.arun(concurrency=CONCURRENCY, signals=False))
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])

    async def cost(self, work: Callable[[], Awaitable[object]]) -> Cost:
        """What the work takes."""
        server, client, began = tree_cpu_seconds(self.server), time.process_time(), time.perf_counter()
        await work()
        seconds, client = time.perf_counter() - began, time.process_time() - client
        return Cost(seconds, client, tree_cpu_seconds(self.server) - server)


async def nothing() -> None:
    """What a step does here."""


def turns(most: int, seconds: float) -> Iterator[int]:
    """The numbers of so many turns, fewer if the time is over."""
    until = time.monotonic() + seconds
    for number in range(most):
        if number and time.monotonic() > until:
            return
        yield number


# --- Fan-out and fan-in.


async def drain(bench: Bench, count: int) -> Cost:
    """Run as many plain tasks, which wait when the worker begins."""
    await bench.plain.asubmit_many({"n": n} for n in range(count))
    bench.left, bench.drained = count, asyncio.Event()

    async def work() -> None:
        async with bench.working():
            await bench.drained.wait()

    return await bench.cost(work)


async def fan_in(bench: Bench, count: int) -> tuple[Cost, Cost]:
    """Store as many children; run them, and then their parent."""
    task_id = await bench.fan.asubmit(count)
    bench.left = 0
    stored = await bench.cost(lambda: bench.queue.aprocess_batch(1))

    async def work() -> None:
        async with bench.working():
            await bench.queue.await_(task_id, timeout=3600)

    ended = await bench.cost(work)
    task = await bench.queue.aget(task_id)
    assert task is not None
    assert task.result == {"value": count}, task.error
    return stored, ended


async def measure_fan(bench: Bench, options: argparse.Namespace) -> dict[str, float]:
    """Children beside a drain of as many tasks, by turns."""
    await drain(bench, 1000)
    await fan_in(bench, 1000)
    pairs: list[tuple[Cost, Cost, Cost]] = []
    memory: list[float] = []
    for number in turns(options.pairs, options.seconds):
        if number % 2:
            stored, children = await fan_in(bench, options.children)
            plain = await drain(bench, options.children)
        else:
            plain = await drain(bench, options.children)
            with peak_memory() as peak:
                stored, children = await fan_in(bench, options.children)
            memory.append(await peak)
        pairs.append((plain, stored, children))
    count = options.children
    return {
        "pairs": len(pairs),
        "plain drain, tasks/s": median(count / plain.seconds for plain, _, _ in pairs),
        "children fanned in, tasks/s": median(count / children.seconds for _, _, children in pairs),
        "children / plain, by the clock": median(plain.seconds / children.seconds for plain, _, children in pairs),
        "children / plain, by CPU": median(plain.cpu / children.cpu for plain, _, children in pairs),
        "a plain task, µs of CPU here": median(plain.client / count * 1e6 for plain, _, _ in pairs),
        "a plain task, µs of CPU on the server": median(plain.server / count * 1e6 for plain, _, _ in pairs),
        "a child, µs of CPU here": median(children.client / count * 1e6 for _, _, children in pairs),
        "a child, µs of CPU on the server": median(children.server / count * 1e6 for _, _, children in pairs),
        "storing a child, µs of CPU": median(stored.cpu / count * 1e6 for _, stored, _ in pairs),
        "memory above the start at most, MB": max(memory),
    }


class peak_memory:  # noqa: N801  used as a function
    """How many MB the process grew in the block at most; awaited after it."""

    def __enter__(self) -> Awaitable[float]:
        self._looking = asyncio.ensure_future(self._look())
        return self._looking

    def __exit__(self, *_: object) -> None:
        self._looking.cancel()

    async def _look(self) -> float:
        process = psutil.Process()
        first = most = process.memory_info().rss
        with suppress(asyncio.CancelledError):
            while True:
                most = max(most, process.memory_info().rss)
                await asyncio.sleep(0.05)
        return (most - first) / 2**20


# --- Waking.


async def measure_wake(bench: Bench, options: argparse.Namespace) -> dict[str, float]:
    """A parent after its last child, a workflow after its event, and beside them a task that is submitted."""
    late: dict[str, list[float]] = {"parent": [], "event": [], "submit": [], "stored": []}
    async with bench.working():
        for number in turns(options.rounds, options.seconds):
            bench.expect("parent")
            await bench.parent.asubmit()
            await bench.late("parent", 0.0)
            late["parent"].append((bench.last("parent") - bench.last("child")) * 1e3)

            event = f"event-{time.monotonic_ns()}-{number}"
            await bench.waiting.asubmit(event)
            await asyncio.sleep(SETTLED_SECONDS)  # it waits, and the worker has nothing to do
            began = bench.expect("woken")
            await bench.queue.aemit(event, 1)
            late["event"].append(await bench.late("woken", began))

            await asyncio.sleep(SETTLED_SECONDS)
            began = bench.expect("submit")
            await bench.noted.asubmit("submit")
            late["submit"].append(await bench.late("submit", began))

            await asyncio.sleep(SETTLED_SECONDS)
            began = time.perf_counter()
            await bench.noted.options(delay_seconds=3600).asubmit("later")
            late["stored"].append((time.perf_counter() - began) * 1e3)
    return {
        "rounds": len(late["parent"]),
        "last child's end to parent, ms": median(late["parent"]),
        "last child's end to parent, p90": sorted(late["parent"])[len(late["parent"]) * 9 // 10],
        "event to workflow, ms": median(late["event"]),
        "event to workflow, p90": sorted(late["event"])[len(late["event"]) * 9 // 10],
        "submit to plain task, ms": median(late["submit"]),
        "a submit, which is one wait for the disk, ms": median(late["stored"]),
    }


# --- Steps.


async def one_by_one(bench: Bench, count: int) -> None:
    """Submit so many, each when the one before is stored."""
    for n in range(count):
        await bench.plain.options(delay_seconds=3600).asubmit(n)


async def recorded(bench: Bench, workflows: int, steps: int) -> Cost:
    """Record steps by so many workflows at once."""
    ids = await bench.stepping.asubmit_many([{"steps": steps}] * workflows)

    async def work() -> None:
        async with bench.working():
            await asyncio.gather(*[bench.queue.await_(task_id, timeout=3600) for task_id in ids])

    return await bench.cost(work)


async def measure_steps(bench: Bench, options: argparse.Namespace) -> dict[str, float]:
    """Recorded steps beside submits, by turns."""
    count, each = options.steps, max(1, options.steps // 10)
    many = options.workflows * each
    rounds: list[tuple[Cost, Cost, Cost]] = []
    for _ in turns(options.pairs, options.seconds):
        submits = await bench.cost(lambda: one_by_one(bench, count))
        rounds.append((submits, await recorded(bench, 1, count), await recorded(bench, options.workflows, each)))
    return {
        "submits one by one, /s": median(count / submits.seconds for submits, _, _ in rounds),
        "steps of one workflow, /s": median(count / one.seconds for _, one, _ in rounds),
        "steps of many, /s": median(many / all_.seconds for _, _, all_ in rounds),
        "steps of one / submits, by the clock": median(submits.seconds / one.seconds for submits, one, _ in rounds),
        "steps of one / submits, by CPU": median(submits.cpu / one.cpu for submits, one, _ in rounds),
        "steps of many / submits, by the clock": median(
            submits.seconds / count / (all_.seconds / many) for submits, _, all_ in rounds
        ),
        "steps of many / submits, by CPU": median(
            submits.cpu / count / (all_.cpu / many) for submits, _, all_ in rounds
        ),
        "a submit, µs of CPU": median(submits.cpu / count * 1e6 for submits, _, _ in rounds),
        "a step of one, µs of CPU": median(one.cpu / count * 1e6 for _, one, _ in rounds),
        "a step of many, µs of CPU": median(all_.cpu / many * 1e6 for _, _, all_ in rounds),
    }


# --- All of it.

MEASURES: Final = {"fan": measure_fan, "wake": measure_wake, "steps": measure_steps}
PROMISED: Final[dict[str, tuple[float, float]]] = {
    "children / plain, by the clock": (0.95, INFINITE),
    "children / plain, by CPU": (0.95, INFINITE),
    "last child's end to parent, ms": (0.0, 20.0),
    "event to workflow, ms": (0.0, 10.0),
    "steps of one / submits, by the clock": (0.8, INFINITE),
    "steps of many / submits, by the clock": (8.0, INFINITE),
}


async def measure(server: Server, options: argparse.Namespace) -> dict[str, float]:
    """All figures of one run."""
    found: dict[str, float] = {}
    for part in options.only:
        bench = Bench(server)
        async with bench.queue:
            found |= await MEASURES[part](bench, options)
    return found


def run(options: argparse.Namespace) -> bool:
    """Whether the promises were kept."""
    logging.disable(logging.WARNING)
    with durable_server(options.postgres) as server:
        found = asyncio.run(measure(server, options))
    kept = {name: low <= found[name] <= high for name, (low, high) in PROMISED.items() if name in found}
    rows = [
        [name, f"{value:,.2f}", {True: "yes", False: "no", None: ""}[kept.get(name)]] for name, value in found.items()
    ]
    show(f"workflows, {options.children:,} children", ["", "measured", "as promised"], rows)
    save(options.save, {"figures": found, "kept": kept})
    return all(kept.values())


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to measure")
    parser.add_argument("--children", type=int, default=100_000)
    parser.add_argument("--pairs", type=int, default=3, help="how often children and steps are measured")
    parser.add_argument("--rounds", type=int, default=50, help="how often a wake-up is measured")
    parser.add_argument("--steps", type=int, default=1000, help="steps of one workflow, and submits beside them")
    parser.add_argument("--workflows", type=int, default=CONCURRENCY, help="workflows that record steps at once")
    parser.add_argument("--seconds", type=float, default=120.0, help="for each part, about")
    parser.add_argument("--save", type=Path, help="write the figures as JSON")
