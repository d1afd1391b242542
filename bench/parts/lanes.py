"""How long the lanes of a day take over very many attempts: by worker, by concurrency key, and of one type.

    python -m bench lanes [--attempts 1000000] [--rounds 10]

A hundred slots on ten workers have run without a pause for a day.  `--database-url` measures a database that was filled
before, or fills it if it is empty and keeps it.  Exits with 1 if a kind takes more than 5 s.
"""

from __future__ import annotations

import argparse
import http.client
import json
import time
from datetime import timedelta
from urllib.parse import urlencode

import psycopg

from bench.parts.http_create import serving
from bench.parts.http_lists import SCHEMA, STEP, TURNS, p95
from bench.report import middle, show
from bench.server import durable_server, fresh_schema
from tasklib import TaskQueue
from tasklib.storage.operations.statistics import keep_statistics

PROMISED_MS = 5000.0
ATTEMPTS = """
INSERT INTO tasks (
    name, state, created_at, scheduled_at, updated_at, started_at, completed_at, attempts, version, kwargs, result,
    error, finished_by, concurrency_key
)
SELECT
    'type.' || n %% 20, s.state, c.at, c.at, c.at, c.at, c.at + c.length, 1, 1, jsonb_build_object('order', n),
    CASE WHEN s.state = 'completed' THEN jsonb_build_object('value', n) END,
    CASE WHEN s.state = 'failed' THEN 'ValueError: order ' || n || ' has no card' END,
    'worker-' || n %% 100 / 10, 'tenant-' || n %% 50
FROM generate_series(%(first)s::bigint, %(last)s) AS n
CROSS JOIN LATERAL (
    SELECT now() - (%(rows)s::bigint - n) * interval '86000 seconds' / %(rows)s AS at,
        interval '86000 seconds' / %(rows)s * 90 AS length
) AS c
CROSS JOIN LATERAL (SELECT CASE n %% 199 WHEN 0 THEN 'failed' ELSE 'completed' END AS state) AS s
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--attempts", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--database-url", help="a database with a schema named bench, filled if that is not there")


def run(given: argparse.Namespace) -> bool:
    """Print p50 and p95 of each kind; whether all kept the promise."""
    if given.database_url is not None:
        return measure(given.database_url, given)
    with durable_server(given.postgres) as server:
        fresh_schema(server, SCHEMA).close()
        return measure(server.url, given)


def measure(url: str, given: argparse.Namespace) -> bool:
    """Fill the database if it is empty, and ask for each kind in turn, after one round that nobody counts."""
    fill(url, given.attempts)
    took: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    with serving(f"{url}?schema={SCHEMA}") as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        for number in range(given.rounds + 1):
            for kind, query in kinds().items():
                began = time.perf_counter()
                connection.request("GET", "/api/metrics/lanes?" + urlencode(query))
                answer = connection.getresponse()
                body = answer.read()
                assert answer.status == 200, body
                if number:
                    took.setdefault(kind, []).append((time.perf_counter() - began) * 1e3)
                    counts[kind] = json.loads(body)["count"]
    rows = [
        (kind, f"{middle(times):.0f}", f"{p95(times):.0f}", f"{counts[kind]:,} attempts")
        for kind, times in took.items()
    ]
    show(
        f"{given.attempts:,} attempts, {given.rounds} requests of each kind, ms", ("kind", "p50", "p95", "shown"), rows
    )
    return all(p95(times) <= PROMISED_MS for times in took.values())


def kinds() -> dict[str, dict[str, object]]:
    """What is asked for."""
    day = 86_400
    return {
        "a day, by worker": {"seconds": day},
        "a day, by key": {"seconds": day, "by": "key"},
        "a day, one type": {"seconds": day, "type": "type.7"},
        "an hour, by worker": {"seconds": 3600},
    }


def fill(url: str, attempts: int) -> None:
    """Store the attempts unless some are there, and leave the table as housekeeping would."""
    with psycopg.connect(url, autocommit=True, options=f"-csearch_path={SCHEMA}") as connection:
        if connection.execute("SELECT FROM tasks LIMIT 1").fetchone() is not None:
            return
        for first in range(1, attempts + 1, STEP):
            rows = {"first": first, "last": min(first + STEP - 1, attempts), "rows": attempts}
            connection.execute(ATTEMPTS, rows)
        connection.execute("VACUUM ANALYZE tasks")
    with TaskQueue(f"{url}?schema={SCHEMA}") as queue:
        for _ in range(TURNS):
            queue.database.run(lambda: keep_statistics(fold_every=timedelta(0)))
