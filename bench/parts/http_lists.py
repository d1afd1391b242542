"""How long lists and counts of the HTTP service take over very many tasks, each kind asked for many times.

    python -m bench http_lists [--waiting 1000000] [--finished 10000000] [--rounds 40]

Finished tasks of the last month lie below a backlog of the last hour; filling takes some minutes and 10 GB of disk.
`--database-url` measures a database that was filled before, or fills it if it is empty and keeps it.  Exits with 1 if
any kind takes more than 50 ms at p95.
"""

from __future__ import annotations

import argparse
import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from statistics import quantiles
from typing import Any
from urllib.parse import urlencode

import psycopg

from bench.parts.http_create import serving
from bench.report import middle, show
from bench.server import durable_server, fresh_schema
from tasklib import TaskQueue
from tasklib.storage.operations.statistics import keep_statistics

SCHEMA = "bench"
PROMISED_MS = 50.0
STEP = 500_000
TURNS = 5
"""Of keeping the books: a position is noted, then surely passed by all, then counted up to."""
FINISHED = """
INSERT INTO tasks (
    name, state, created_at, scheduled_at, updated_at, started_at, completed_at, attempts, version, kwargs, tags,
    result, error, fingerprint, finished_by
)
SELECT
    CASE WHEN n %% 100000 = 7 THEN 'rare' ELSE 'old.' || n %% 20 END, s.state, c.at, c.at, c.at, c.at,
    c.at + interval '20 milliseconds', 1, 1, jsonb_build_object('order', n, 'to', 'someone@example.com'),
    jsonb_build_object('tenant', n %% 1000), CASE WHEN s.state = 'completed' THEN jsonb_build_object('value', n) END,
    CASE WHEN s.state IN ('failed', 'buried') THEN 'ValueError: order ' || n || ' has no card' END,
    CASE WHEN s.state IN ('failed', 'buried') THEN 'ValueError in pay' || n %% 50 END, 'worker-1'
FROM generate_series(%(first)s::bigint, %(last)s) AS n
CROSS JOIN LATERAL (SELECT now() - interval '1 hour' - (%(rows)s::bigint - n) * interval '0.25 seconds' AS at) AS c
CROSS JOIN LATERAL (
    SELECT CASE n %% 199 WHEN 0 THEN 'failed' WHEN 1 THEN 'cancelled' WHEN 2 THEN 'buried' ELSE 'completed' END AS state
) AS s
"""
WAITING = """
INSERT INTO tasks (
    name, state, created_at, scheduled_at, updated_at, next_retry_at, attempts, kwargs, tags, unique_key, error
)
SELECT
    'new.' || n %% 20, CASE WHEN r.retrying THEN 'failed' ELSE 'pending' END, c.at,
    CASE WHEN n %% 10 = 0 THEN now() + interval '1 day' ELSE c.at END, c.at,
    CASE WHEN r.retrying THEN now() + interval '1 day' END, r.retrying::integer,
    jsonb_build_object('order', n, 'to', 'someone@example.com'), jsonb_build_object('tenant', n %% 1000), 'key-' || n,
    CASE WHEN r.retrying THEN 'OSError: no answer' END
FROM generate_series(%(first)s::bigint, %(last)s) AS n
CROSS JOIN LATERAL (SELECT now() - (%(rows)s::bigint - n) * interval '3 milliseconds' AS at) AS c
CROSS JOIN LATERAL (SELECT n %% 499 = 0 AS retrying) AS r
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--finished", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--database-url", help="a database with a schema named bench, filled if that is not there")


def run(given: argparse.Namespace) -> bool:
    """Print p50 and p95 of each kind; whether all kept the promise."""
    with database(given.database_url, given.postgres, given.waiting, given.finished) as url, serving(url) as port:
        took = measure(port, given.rounds)
    rows = [(kind, f"{middle(times):.1f}", f"{p95(times):.1f}", note) for kind, (times, note) in took.items()]
    title = (
        f"{given.waiting:,} waiting above {given.finished:,} finished tasks, {given.rounds} requests of each kind, ms"
    )
    show(title, ("kind", "p50", "p95", "last answer"), rows)
    slow = [kind for kind, (times, _) in took.items() if p95(times) > PROMISED_MS]
    if slow:
        print(f"more than {PROMISED_MS:.0f} ms at p95: {', '.join(slow)}")
    return not slow


def p95(times: list[float]) -> float:
    """What 95 in a hundred did not exceed."""
    return quantiles(times, n=20, method="inclusive")[-1]


@contextmanager
def database(given: str | None, version: int | None, waiting: int, finished: int) -> Iterator[str]:
    """The address of a filled database."""
    if given is None:
        with durable_server(version) as server:
            fresh_schema(server, SCHEMA).close()
            fill(server.url, waiting, finished)
            yield f"{server.url}?schema={SCHEMA}"
        return
    fill(given, waiting, finished)
    yield f"{given}?schema={SCHEMA}"


def fill(url: str, waiting: int, finished: int) -> None:
    """Store the tasks unless some are there, and leave the table as housekeeping would an hour later."""
    with psycopg.connect(url, autocommit=True, options=f"-csearch_path={SCHEMA}") as connection:
        if connection.execute("SELECT FROM tasks LIMIT 1").fetchone() is not None:
            return
        for statement, rows in ((FINISHED, finished), (WAITING, waiting)):
            for first in range(1, rows + 1, STEP):
                connection.execute(statement, {"first": first, "last": min(first + STEP - 1, rows), "rows": rows})
        connection.execute("VACUUM ANALYZE tasks")
    with TaskQueue(f"{url}?schema={SCHEMA}") as queue:
        for _ in range(TURNS):
            queue.database.run(lambda: keep_statistics(fold_every=timedelta(0)))


def measure(port: int, rounds: int) -> dict[str, tuple[list[float], str]]:
    """Milliseconds of each answer by kind, all kinds in turn, after one round that nobody counts."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(path: str) -> tuple[Any, float]:
        began = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return json.loads(body), (time.perf_counter() - began) * 1e3

    newest = datetime.fromisoformat(ask("/api/tasks?limit=1")[0]["tasks"][0]["createdAt"])
    took: dict[str, tuple[list[float], str]] = {}
    for round_number in range(rounds + 1):
        for kind, path in kinds(newest, round_number).items():
            body, milliseconds = ask(path)
            times = took.get(kind, ([], ""))[0] + ([milliseconds] if round_number else [])
            took[kind] = (times, summary(body))
    return took


def kinds(now: datetime, round_number: int) -> dict[str, str]:
    """The path of each kind; moments and texts are others in each round, so that no answer is remembered."""
    back = timedelta(minutes=round_number)
    below, above = now - timedelta(hours=2) - back, now - timedelta(minutes=30) - back / 60
    text = f"order {199 * (1000 + round_number)} "

    def tasks(*, status: str | tuple[str, ...] = (), **query: object) -> str:
        return "/api/tasks?" + urlencode({"status": status, **query}, doseq=True)

    failed = {"status": "failed"}
    return {
        "stats": "/api/tasks/stats",
        "types": "/api/types",
        "errors": "/api/errors",
        "all": tasks(),
        "all, 100 a page": tasks(limit=100),
        "type": tasks(type="old.3"),
        "type, of the backlog": tasks(type="new.3"),
        "type, rare": tasks(type="rare"),
        "type, unknown": tasks(type="none"),
        "pending": tasks(status="pending"),
        "delayed": tasks(status="delayed"),
        "retrying": tasks(status="retrying"),
        "processing": tasks(status="processing"),
        "completed": tasks(status="completed"),
        "completed, type": tasks(status="completed", type="old.7"),
        "completed, rare type": tasks(status="completed", type="rare"),
        "completed or failed": tasks(status=("completed", "failed")),
        "failed": tasks(**failed),
        "failed, type": tasks(**failed, type="old.3"),
        "failed, rare type": tasks(**failed, type="rare"),
        "failed, search": tasks(**failed, search=text),
        "failed, search without a match": tasks(**failed, search=f"nowhere {round_number}"),
        "failed, tag": tasks(**failed, tag=f"tenant={round_number}"),
        "failed, created before": tasks(**failed, createdBefore=below.isoformat()),
        "failed in one way": tasks(fingerprint="ValueError in pay7"),
        "failed in one way, type": tasks(fingerprint="ValueError in pay7", type="old.7"),
        "cancelled or buried": tasks(status=("cancelled", "buried")),
        "search": tasks(search="someone@example.com"),
        "search without a match": tasks(search=f"nowhere {round_number}"),
        "tag": tasks(tag=f"tenant={round_number}"),
        "one argument": tasks(search=f"args.order:{1000 + round_number}"),
        "one worker": tasks(search=f"worker:nobody-{round_number}"),
        "one release": tasks(search=f"release:1.{round_number}"),
        "a run time": tasks(search=f"duration:{round_number + 1}m.."),
        "unique key": tasks(uniqueKey=f"key-{round_number + 1}"),
        "created before the backlog": tasks(createdBefore=below.isoformat()),
        "created before the backlog, type": tasks(createdBefore=below.isoformat(), type="old.3"),
        "created before the backlog, completed": tasks(createdBefore=below.isoformat(), status="completed"),
        "created before all": tasks(createdBefore=(now - timedelta(days=300)).isoformat()),
        "created after": tasks(createdAfter=above.isoformat()),
        "created after, completed": tasks(createdAfter=above.isoformat(), status="completed"),
        "offset 1,000": tasks(offset=1000 + round_number),
        "offset 100,000": tasks(offset=100_000 + round_number),
        "offset 100,000, type": tasks(offset=100_000 + round_number, type="old.3"),
        "offset 100,000, completed": tasks(offset=100_000 + round_number, status="completed"),
    }


def summary(body: object) -> str:
    """What an answer held, in few words."""
    if not isinstance(body, dict) or "tasks" not in body:
        return ""
    return f"{len(body['tasks'])} of {body['total']}{', more' if body['nextCursor'] else ''}"
