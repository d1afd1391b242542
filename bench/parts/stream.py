"""What a long stream holds in memory: millions of rows from a generator, submitted without keeping their ids.

    python -m bench stream                          10,000,000 rows
    python -m bench stream --quick                  200,000 rows

At each of twenty points the producer reports how much memory it holds.  What it held at the first is what a program
needs to submit at all; if it holds much more at any later one, the stream is not flat and the program fails.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from bench.report import save, show
from bench.server import durable_server, tree_cpu_seconds
from tasklib import Config, TaskQueue

ROWS, QUICK_ROWS = 10_000_000, 200_000
POINTS = 20
MOST_GROWTH_MIB = 8.0
"""Allocators differ and round up; ten million ids alone would be 160."""


@dataclass(frozen=True, slots=True)
class Point:
    """How far the stream was, after how long, and what the producer held then."""

    rows: int
    seconds: float
    memory_mib: float


@dataclass(slots=True)
class Source:
    """Rows made one by one; it notes the points as they are passed."""

    count: int
    points: list[Point] = field(default_factory=list)
    _process: psutil.Process = field(default_factory=psutil.Process)
    _started: float = field(default_factory=time.monotonic)

    def rows(self) -> Iterator[dict[str, object]]:
        every = max(1, self.count // POINTS)
        for number in range(1, self.count + 1):
            yield {"n": number, "text": f"row {number}"}
            if number % every == 0:
                memory = self._process.memory_info().rss / 2**20
                self.points.append(Point(number, time.monotonic() - self._started, memory))

    def growth(self) -> float:
        """How many MiB more the producer ever held than at the first point."""
        return max(point.memory_mib for point in self.points) - self.points[0].memory_mib


async def noop(n: int, text: str) -> None:
    """Never run."""


async def stream(url: str, count: int) -> Source:
    """Submit so many rows."""
    async with TaskQueue(Config(url)) as queue:
        task = queue.task(noop)
        await task.asubmit(0, "connected, and the types compiled, before the first point")
        source = Source(count)
        ids = await task.asubmit_many(source.rows(), keep_ids=False)
        assert ids.created == count
    return source


def run(options: argparse.Namespace) -> bool:
    """Whether memory stayed within its bound."""
    with durable_server(options.postgres) as server:
        processor, before = time.process_time(), tree_cpu_seconds(server)
        source = asyncio.run(stream(server.url, options.rows))
        cost = [(time.process_time() - processor), tree_cpu_seconds(server) - before]
    rows = [[f"{p.rows:,}", f"{p.rows / p.seconds:,.0f}", f"{p.memory_mib:.1f}"] for p in source.points]
    producer, servers = (seconds / options.rows * 1e6 for seconds in cost)
    show(
        f"{options.rows:,} rows: {producer:.1f} µs of the producer and {servers:.1f} of the server for each",
        ["rows", "per second", "producer MiB"],
        rows,
    )
    save(options.json, {"rows": options.rows, "points": [asdict(point) for point in source.points]})
    print(f"grown by {source.growth():.1f} MiB since the first point; {MOST_GROWTH_MIB:g} are allowed")
    return source.growth() <= MOST_GROWTH_MIB


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--quick", dest="rows", action="store_const", const=QUICK_ROWS, help=f"{QUICK_ROWS:,} rows")
    parser.add_argument("--json", type=Path, help="write every run to this file")
