"""What the background removal of old tasks costs others: tasks drained per second, with and without it.

    python -m bench.retention --old 100000

Each round drains the same number of tasks twice, beside a table of old finished ones: alone, and while the janitor of
a worker removes those at its own pace.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from dataclasses import dataclass

import psycopg

from bench.claim import LOAD, SCHEMA, Drain
from bench.report import middle, show
from bench.server import durable_server, fresh_schema
from tasklib import Config, TaskQueue
from tasklib.retention import parse_retention
from tasklib.storage.postgres.database import SESSION
from tasklib.storage.postgres.dialect import PostgresDialect
from tasklib.worker.janitor import Janitor
from tools.postgres import Server

OLD = """
INSERT INTO tasks (name, state, created_at, scheduled_at, started_at, completed_at, attempts, version, result)
SELECT 'old', 'completed', c.at, c.at, c.at, c.at, 1, 1, '{"value": null}'
FROM generate_series(1, %s) AS n CROSS JOIN (SELECT now() - interval '10 days' AS at) AS c
"""


@dataclass(slots=True)
class Round:
    """One drain."""

    per_second: float
    removed: int
    """Old tasks removed while it lasted."""


class Removal:
    """The janitor of a worker, in a thread of its own until it is stopped."""

    def __init__(self, url: str) -> None:
        self._queue = TaskQueue(Config(url))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()))
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._queue.close()

    async def _work(self) -> None:
        janitor = Janitor(self._queue.database, parse_retention("completed=1d"), now=self._queue.clock.now)
        sweep = asyncio.ensure_future(janitor.step())
        await asyncio.to_thread(self._stop.wait)
        sweep.cancel()
        await asyncio.gather(sweep, return_exceptions=True)
        await self._queue.aclose()


def measure(server: Server, *, tasks: int, old: int, removing: bool) -> Round:
    with fresh_schema(server, SCHEMA) as connection:
        connection.execute(OLD, (old,))
        connection.execute(LOAD, {"types": 1, "tasks": tasks, "payload": 0})
        connection.execute("ANALYZE tasks")
        connection.execute(SESSION.encode())
        drain = Drain(connection, PostgresDialect(SCHEMA))
        drain.register()
        separator = "&" if "?" in server.url else "?"
        removal = Removal(f"{server.url}{separator}schema={SCHEMA}") if removing else None
        began = time.monotonic()
        done = drain.work(["noop.0"], 100)
        elapsed = time.monotonic() - began
        left = _left(connection)
        if removal is not None:
            removal.stop()
        assert done == tasks
    return Round(done / elapsed, old - left)


def _left(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT count(*) FROM tasks WHERE name = 'old'").fetchone()
    assert row is not None
    return int(row[0])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.retention", description="Cost of removing old tasks.")
    parser.add_argument("--old", type=int, default=100_000)
    parser.add_argument("--tasks", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--postgres", type=int, help="major version, the newest installed if not given")
    options = parser.parse_args()
    alone: list[Round] = []
    beside: list[Round] = []
    with durable_server(options.postgres) as server:
        for _ in range(options.rounds):
            for removing, rounds in ((False, alone), (True, beside)):
                rounds.append(measure(server, tasks=options.tasks, old=options.old, removing=removing))
    slower = middle([1 - b.per_second / a.per_second for a, b in zip(alone, beside, strict=True)])
    rows = [
        (name, f"{middle([r.per_second for r in rounds]):,.0f}", f"{middle([r.removed for r in rounds]):,.0f}")
        for name, rounds in (("alone", alone), ("while old tasks are removed", beside))
    ]
    title = f"{options.tasks:,} tasks beside {options.old:,} old ones, median of {options.rounds}: {slower:.1%} slower"
    show(title, ("drain", "tasks/s", "removed meanwhile"), rows)


if __name__ == "__main__":
    main()
