"""What the background removal of old tasks costs others: tasks drained per second, with and without it.

    python -m bench retention --old 100000

One connection claims and completes as fast as it can, in rounds of equal work, and in every second round the retention
service of a worker removes old tasks at its own pace, until all are gone.  Each round is compared with the one before:
other load on the machine meets both, and the median of many such pairs is steady.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import quantiles

import psycopg

from bench.parts.claim import SCHEMA, Drain
from bench.report import middle, show
from bench.server import durable_server, fresh_schema, tree_cpu_seconds
from tasklib import Config, TaskQueue
from tasklib.core.retention import parse_retention
from tasklib.storage.dialects.postgres import PostgresDialect
from tasklib.storage.postgres.session import SESSION
from tasklib.worker.upkeep.retention import RetentionService
from tools.postgres import Server

OLD = """
INSERT INTO tasks (name, state, created_at, scheduled_at, started_at, completed_at, attempts, version, result)
SELECT 'old', 'completed', c.at, c.at, c.at, c.at, 1, 1, '{"value": null}'
FROM generate_series(1, %s) AS n CROSS JOIN (SELECT now() - interval '10 days' AS at) AS c
"""
NEW = "INSERT INTO tasks (name, kwargs) SELECT 'noop', jsonb_build_object('n', n) FROM generate_series(1, %s) AS n"
LEFT = "SELECT count(*) FROM tasks WHERE name = 'old'"
BATCH = 100


@dataclass(frozen=True, slots=True)
class Round:
    """So much work, done at one go."""

    per_second: float
    server_us: float
    """Processor time of the whole server for a task, the retention service's included."""
    removed: int


class Removal:
    """The retention service of a worker, in a thread of its own, which works only while it is allowed to."""

    def __init__(self, url: str) -> None:
        self._queue = TaskQueue(Config(url))
        self._may, self._over = threading.Event(), threading.Event()
        self._resting = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()))
        self._thread.start()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Let it work; afterwards it has ended what it had begun."""
        self._resting.clear()
        self._may.set()
        yield
        self._may.clear()
        self._resting.wait()

    def stop(self) -> None:
        self._over.set()
        self._may.set()
        self._thread.join()
        self._queue.close()

    async def _work(self) -> None:
        service = RetentionService(self._queue, parse_retention("completed=1d"))
        while not self._over.is_set():
            if self._may.is_set():
                await service.sweep_page()
            else:
                self._resting.set()
                await asyncio.to_thread(self._may.wait)
        await self._queue.aclose()


@dataclass(slots=True)
class Bench:
    """A table with old tasks, a connection that works, and a retention service."""

    server: Server
    connection: psycopg.Connection
    drain: Drain
    removal: Removal
    tasks: int

    def pair(self, *, removing_first: bool) -> tuple[Round, Round]:
        """Two rounds, the first of the answer without and the second with the retention service at work."""
        if removing_first:
            beside = self.round(removing=True)
            return self.round(removing=False), beside
        return self.round(removing=False), self.round(removing=True)

    def round(self, *, removing: bool) -> Round:
        self.connection.execute(NEW, (self.tasks,))
        before = self.left()
        if not removing:
            return self._work(before)
        with self.removal.at_work():
            return self._work(before)

    def _work(self, old: int) -> Round:
        cpu, began = tree_cpu_seconds(self.server), time.monotonic()
        done = self.drain.work(["noop"], BATCH)
        elapsed, used = time.monotonic() - began, tree_cpu_seconds(self.server) - cpu
        assert done == self.tasks
        return Round(done / elapsed, used / done * 1e6, old - self.left())

    def left(self) -> int:
        row = self.connection.execute(LEFT.encode()).fetchone()
        assert row is not None
        return int(row[0])


def measure(server: Server, *, tasks: int, old: int, seconds: float) -> list[tuple[Round, Round]]:
    """Pairs until every old task is gone, or the time is up."""
    pairs: list[tuple[Round, Round]] = []
    separator = "&" if "?" in server.url else "?"
    with fresh_schema(server, SCHEMA) as connection:
        removal = Removal(f"{server.url}{separator}schema={SCHEMA}")
        try:
            connection.execute(OLD, (old,))
            connection.execute("ANALYZE tasks")
            connection.execute(SESSION)
            bench = Bench(server, connection, Drain(connection, PostgresDialect(SCHEMA)), removal, tasks)
            bench.drain.register()
            bench.round(removing=False)
            until = time.monotonic() + seconds
            while bench.left() and time.monotonic() < until:
                pairs.append(bench.pair(removing_first=len(pairs) % 2 == 1))
        finally:
            removal.stop()
    return pairs


def report(pairs: list[tuple[Round, Round]], options: argparse.Namespace) -> None:
    slower = [1 - beside.per_second / alone.per_second for alone, beside in pairs]
    low, _, high = quantiles(slower, n=4) if len(slower) > 1 else slower * 3
    removed = sum(beside.removed for _, beside in pairs)
    title = (
        f"{removed:,} of {options.old:,} old tasks removed, {len(pairs)} pairs of {options.tasks:,} tasks: "
        f"{middle(slower):.1%} slower (half of the pairs within {low:.1%} to {high:.1%})"
    )
    rows = [
        (
            name,
            f"{middle([s.per_second for s in column]):,.0f}",
            f"{middle([s.server_us for s in column]):.1f}",
            f"{middle([s.removed * s.per_second / options.tasks for s in column]):,.0f}",
        )
        for name, column in zip(("alone", "while old tasks are removed"), zip(*pairs, strict=True), strict=True)
    ]
    show(title, ("drain", "tasks/s", "server CPU µs/task", "removed/s"), rows)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--old", type=int, default=100_000)
    parser.add_argument("--tasks", type=int, default=4_000, help="of one round")
    parser.add_argument("--seconds", type=float, default=240, help="at most so long")


def run(options: argparse.Namespace) -> None:
    """Measure pairs of rounds and print how they differ."""
    with durable_server(options.postgres) as server:
        report(measure(server, tasks=options.tasks, old=options.old, seconds=options.seconds), options)
