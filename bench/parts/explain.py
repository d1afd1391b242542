"""How long `queue.explain(id)` takes behind very many waiting tasks.

    python -m bench explain --tasks 1000000
    python -m bench explain --later

The task is the last of all, so that as many tasks are ahead of it as `explain` counts at most: once among tasks without
a concurrency key, and once within one key.  With `--later` none is ahead: all have a higher priority, but are not due.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from pathlib import Path
from uuid import uuid4

from bench.parts.claim import SCHEMA
from bench.report import middle, show
from bench.server import durable_server, fresh_schema
from tasklib import TaskId, TaskQueue
from tasklib.storage.operations.workers import Registration, register_worker

FILL = """
INSERT INTO tasks (name, concurrency_key, priority, scheduled_at)
WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count})
SELECT 'crawl', CASE WHEN n > {count} / 2 THEN 'ada' END, {priority}, '{due}' FROM s
"""
BEFORE = {"priority": 0, "due": "2000-01-01 00:00:00.000000"}
LATER = {"priority": 5, "due": "2100-01-01 00:00:00.000000"}
ROUNDS = 30


def measure(queue: TaskQueue, task_id: TaskId) -> tuple[float, float, str]:
    """Milliseconds for an answer, median and maximum, and the reasons."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        explanation = queue.explain(task_id)
        times.append((time.perf_counter() - began) * 1e3)
    return middle(times), max(times), ", ".join(reason.code for reason in explanation.reasons)


def ask(url: str, database: str) -> list[tuple[str, ...]]:
    rows = []
    with TaskQueue(url) as queue:
        who = Registration(uuid4(), "worker-1", "here", 1, 3600.0, 1, ("crawl",))
        queue.database.run(lambda: register_worker(who))
        for what, key in (("without a key", None), ("of a key", "ada")):
            task_id = queue.enqueue("crawl", concurrency_key=key)
            usual, most, reasons = measure(queue, task_id)
            rows.append((database, what, f"{usual:.1f}", f"{most:.1f}", reasons))
    return rows


def on_postgres(version: int | None, fill: str) -> list[tuple[str, ...]]:
    with durable_server(version) as server:
        with fresh_schema(server, SCHEMA) as connection:
            connection.execute(fill.encode())
            connection.execute("ANALYZE tasks")
        separator = "&" if "?" in server.url else "?"
        return ask(f"{server.url}{separator}schema={SCHEMA}", f"PostgreSQL {server.installation.version}")


def on_sqlite(fill: str) -> list[tuple[str, ...]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tasks.db"
        with TaskQueue(f"sqlite:///{file}") as queue:
            queue.migrate()
        with sqlite3.connect(file) as connection:
            connection.execute(fill)
        return ask(f"sqlite:///{file}", f"SQLite {sqlite3.sqlite_version}")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--later", action="store_true", help="tasks of higher priority that are not due yet")


def run(options: argparse.Namespace) -> None:
    """Ask on both databases and print how long it took."""
    fill = FILL.format(count=options.tasks, **(LATER if options.later else BEFORE))
    rows = [*on_postgres(options.postgres, fill), *on_sqlite(fill)]
    columns = ("database", "task", "ms", "at most", "reasons")
    show(f"explain behind {options.tasks:,} waiting tasks, {ROUNDS} answers each", columns, rows)
