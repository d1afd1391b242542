"""Claims, lists, counts and the removal of old tasks in tables of growing size.

    python -m bench big_table [--finished 1000000 10000000 30000000] [--rounds 5]

Each size is a table of its own, with one waiting task above each thirty finished ones.  Thirty million take about 30 GB
of disk.  The oldest million finished tasks (or all, of fewer) are removed in the end, page by page, without the pauses
of a worker.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from dataclasses import dataclass

import psycopg

from bench.parts import http_lists
from bench.parts.claim import Drain
from bench.parts.http_create import serving
from bench.report import middle, show
from bench.server import durable_server, fresh_schema, tree_cpu_seconds
from tasklib import TaskQueue
from tasklib.core.retention import parse_retention
from tasklib.storage.dialects.postgres import PostgresDialect
from tasklib.storage.operations.retention import sweep_tasks
from tasklib.storage.postgres.session import SESSION
from tools.postgres import Server

SCHEMA = http_lists.SCHEMA
AGE = "SELECT extract(epoch FROM now() - completed_at) FROM tasks ORDER BY seq OFFSET %s LIMIT 1"
STATES = ("completed", "failed", "cancelled", "buried")
NEW = "INSERT INTO tasks (name, kwargs) SELECT 'noop', jsonb_build_object('n', n) FROM generate_series(1, %s) AS n"
REMOVED = 1_000_000
DRAINED, ALONE, BATCH = 50_000, 300, 200
# The log of filling would otherwise take as much disk as the table.
SETTINGS = {"max_wal_size": "4GB", "wal_compression": "on"}


@dataclass(slots=True)
class Figures:
    """Of one size."""

    filled_seconds: float
    table_bytes: int
    index_bytes: int
    drained_per_second: float
    drained_us: float
    """CPU of the server for a task, claimed and finished in batches."""
    alone_ms: float
    """A claim and a finish of one task."""
    lists: dict[str, tuple[list[float], str]]
    removed: int
    removed_per_second: float
    removed_us: float
    page_ms: float
    vacuum_seconds: float


def measure(server: Server, finished: int, rounds: int) -> Figures:
    fresh_schema(server, SCHEMA).close()
    url = f"{server.url}?schema={SCHEMA}"
    began = time.monotonic()
    http_lists.fill(server.url, waiting=finished // 30, finished=finished)
    filled = time.monotonic() - began
    with serving(url) as port:
        lists = http_lists.measure(port, rounds)
    with psycopg.connect(server.url, autocommit=True, options=f"-csearch_path={SCHEMA}") as connection:
        connection.execute(SESSION)
        drain = Drain(connection, PostgresDialect(SCHEMA))
        drain.register()
        table, indexes = sizes(connection)
        per_second, server_us = drained(server, drain)
        alone = claimed_alone(drain)
        removed, removing, removing_us, page = remove(server, oldest(connection, min(REMOVED, finished)))
        began = time.monotonic()
        connection.execute("VACUUM tasks")
        vacuumed = time.monotonic() - began
    return Figures(
        filled, table, indexes, per_second, server_us, alone, lists, removed, removing, removing_us, page, vacuumed
    )


def sizes(connection: psycopg.Connection) -> tuple[int, int]:
    row = connection.execute("SELECT pg_table_size('tasks'), pg_indexes_size('tasks')").fetchone()
    assert row is not None
    return row[0], row[1]


def drained(server: Server, drain: Drain) -> tuple[float, float]:
    """Tasks a second, and microseconds of the server for each."""
    drain.connection.execute(NEW, (DRAINED,))
    cpu, began = tree_cpu_seconds(server), time.monotonic()
    done = drain.work(["noop"], BATCH)
    assert done == DRAINED
    seconds, used = time.monotonic() - began, tree_cpu_seconds(server) - cpu
    return done / seconds, used / done * 1e6


def claimed_alone(drain: Drain) -> float:
    """Milliseconds, in the middle, for the claim and the finish of one task, and the claim that finds no other."""
    times = []
    for _ in range(ALONE):
        drain.connection.execute(NEW, (1,))
        began = time.perf_counter()
        assert drain.work(["noop"], 1) == 1
        times.append((time.perf_counter() - began) * 1e3)
    return middle(times)


def oldest(connection: psycopg.Connection, count: int) -> str:
    """The retention that has passed for so many."""
    row = connection.execute(AGE, (count - 1,)).fetchone()
    assert row is not None
    return ",".join(f"{state}={int(row[0])}s" for state in STATES)


def remove(server: Server, retention: str) -> tuple[int, float, float, float]:
    """Remove what is old: how many, how many a second, microseconds of the server for each, milliseconds of a page."""
    removed, pages, rules = 0, list[float](), parse_retention(retention)
    with TaskQueue(f"{server.url}?schema={SCHEMA}") as queue:
        cpu, more = tree_cpu_seconds(server), True
        while more:
            began = time.perf_counter()
            swept = queue.database.run(lambda: sweep_tasks(rules, 60.0))
            assert swept is not None
            pages.append(time.perf_counter() - began)
            removed, more = removed + swept.deleted, swept.more
        used = tree_cpu_seconds(server) - cpu
    return removed, removed / sum(pages), used / removed * 1e6, middle(pages) * 1e3


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--finished", type=int, nargs="+", default=[1_000_000, 10_000_000, 30_000_000])
    parser.add_argument("--rounds", type=int, default=5, help="requests of each kind of list")


def run(options: argparse.Namespace) -> None:
    """Measure each size, and print them side by side."""
    found: dict[int, Figures] = {}
    with durable_server(options.postgres, SETTINGS) as server:
        for finished in options.finished:
            found[finished] = measure(server, finished, options.rounds)
            print(f"{finished:,} finished tasks: measured", flush=True)
        version = server.installation.version
    columns = ("", *(f"{finished:,}" for finished in found))
    show(f"PostgreSQL {version}, by finished tasks", columns, summary(list(found.values())))
    lists = [
        (kind, *(f"{middle(each.lists[kind][0]):.1f}" for each in found.values()))
        for kind in next(iter(found.values())).lists
    ]
    show(f"ms, in the middle of {options.rounds}", columns, lists)


def summary(found: list[Figures]) -> list[tuple[str, ...]]:
    def row(what: str, values: Iterable[str]) -> tuple[str, ...]:
        return (what, *values)

    return [
        row("filled, s", (f"{f.filled_seconds:.0f}" for f in found)),
        row("table and its indexes, GB", (f"{f.table_bytes / 1e9:.1f} + {f.index_bytes / 1e9:.1f}" for f in found)),
        row(f"claimed and finished by {BATCH}, tasks/s", (f"{f.drained_per_second:,.0f}" for f in found)),
        row("  server µs for each", (f"{f.drained_us:.1f}" for f in found)),
        row("one task claimed and finished, ms", (f"{f.alone_ms:.2f}" for f in found)),
        row("old tasks removed", (f"{f.removed:,}" for f in found)),
        row("  without pauses, tasks/s", (f"{f.removed_per_second:,.0f}" for f in found)),
        row("  server µs for each", (f"{f.removed_us:.1f}" for f in found)),
        row("  a page of 1,000, ms", (f"{f.page_ms:.1f}" for f in found)),
        row("VACUUM afterwards, s", (f"{f.vacuum_seconds:.1f}" for f in found)),
    ]
