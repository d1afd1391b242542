"""Drains under hard conditions: a table full of other rows, a snapshot held open, and the rest of a busy day beside."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from bench.environment import command, folder, variables
from bench.peer import Peer
from bench.place import Places
from bench.programs import Workers, produce
from bench.workloads import Figures, drain, prepare

FINISHED, FUTURE, FOREIGN, OLD = 10_000_000, 1_000_000, 1_000_000, 1_000_000
"""Rows in the table beside those that are drained, at full length."""
SNAPSHOT_TASKS = 1_000_000
STEP = 500_000
LAST_PART = 0.2
FILL = """
INSERT INTO tasks (
    name, state, created_at, scheduled_at, updated_at, started_at, completed_at, attempts, version, result, finished_by
)
SELECT
    %(name)s || n %% 20, %(state)s, c.at, c.at + %(later)s::interval, c.at, c.ended, c.ended,
    (c.ended IS NOT NULL)::integer, (c.ended IS NOT NULL)::integer,
    CASE WHEN c.ended IS NOT NULL THEN '{"value": null}'::jsonb END, CASE WHEN c.ended IS NOT NULL THEN 'worker-1' END
FROM generate_series(1, %(rows)s) AS n CROSS JOIN (
    SELECT now() - interval '1 day' AS at, CASE WHEN %(state)s = 'completed' THEN now() - interval '1 day' END AS ended
) AS c
"""


def among_many(places: Places, peer: Peer, count: int) -> Figures:
    """Drain in a table that holds finished tasks, tasks for later, and tasks of types that nobody here runs."""
    share = count / peer.tasks

    def fill(address: str) -> None:
        _fill(address, "old.", "completed", round(FINISHED * share))
        _fill(address, "in_coroutine", "pending", round(FUTURE * share), later="1 year")
        _fill(address, "foreign.", "pending", round(FOREIGN * share))
        _vacuum(address)

    return drain(places, peer, count, before=fill)


def beside_others(places: Places, peer: Peer, count: int) -> Figures:
    """Drain while others submit 50 tasks a second, ten dashboards look, and old tasks are removed."""

    def fill(address: str) -> None:
        _fill(address, "old.", "completed", round(OLD * count / peer.tasks))
        _vacuum(address)

    return drain(places, peer, count, before=fill, beside=_busy)


def under_a_snapshot(places: Places, peer: Peer, count: int) -> Figures:
    """Drain ten times as many while another session holds a snapshot open; the rate is that of the last fifth."""
    total = count * SNAPSHOT_TASKS // peer.tasks
    with places.fresh(peer) as address:
        prepare(peer, address)
        produce(peer, "bulk", address, total)
        places.analyze(peer)
        with psycopg.connect(address) as other:
            other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            other.execute("SELECT count(*) FROM pg_class")
            with Workers(peer, address) as running:
                running.wait(1)
                started, first = time.monotonic(), running.ran
                running.wait(round(total * (1 - LAST_PART)), 600)
                late, since = time.monotonic(), running.ran
                running.wait(total, 600)
                ended = time.monotonic()
    return {"per_second": (total - since) / (ended - late), "whole_per_second": (total - first) / (ended - started)}


def _fill(address: str, name: str, state: str, rows: int, *, later: str = "0") -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        for begun in range(0, rows, STEP):
            asked = {"name": name, "state": state, "later": later, "rows": min(STEP, rows - begun)}
            connection.execute(FILL, asked)


def _vacuum(address: str) -> None:
    """Leave the table as the server's own housekeeping would an hour later."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE tasks")


@contextmanager
def _busy(peer: Peer, address: str) -> Iterator[None]:
    """Another process that does what others do with the same database, from when it says so to the end."""
    process = subprocess.Popen(
        [*command(peer), "busy", address], cwd=folder(peer), env=variables(peer), stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait()
