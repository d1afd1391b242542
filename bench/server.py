"""A PostgreSQL server to measure on: durable, nothing else on it, and the CPU time of its processes readable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import psycopg

from tasklib.storage.dialects.postgres import PostgresDialect
from tasklib.storage.postgres.schema import ensure_schema
from tools.postgres import Server, available, start

SETTINGS = {
    # As in the measurements we compare with (docs/performance.md).
    "shared_buffers": "1GB",
    # No checkpoint falls into a run: it would write whole pages into the log of whichever run it hits.
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
}


@contextmanager
def durable_server(version: int | None, settings: dict[str, str] | None = None) -> Iterator[Server]:
    """A server that keeps every promise of durability; the newest version if none is named."""
    installations = {installation.version: installation for installation in available()}
    chosen = installations[version or max(installations)]
    with start(chosen, durable=True, settings=SETTINGS | (settings or {})) as server:
        yield server


def fresh_schema(server: Server, name: str) -> psycopg.Connection:
    """A connection whose search path is a new schema holding tasklib's tables and nothing else."""
    with psycopg.connect(server.url, autocommit=True, options="-cclient_min_messages=error") as connection:
        connection.execute(psycopg.sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(psycopg.sql.Identifier(name)))
        ensure_schema(connection, PostgresDialect(name), migrate=True)
    return psycopg.connect(server.url, autocommit=True, options=f"-csearch_path={name}")


def cpu_seconds(pid: int) -> float:
    """The processor time a process has used so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def tree_cpu_seconds(server: Server) -> float:
    """The processor time of the whole server, those of its sessions that have ended included."""
    postmaster = psutil.Process(server.pid)
    while True:
        # A session that ends while we look is counted by its parent when we look again.
        with suppress(psutil.NoSuchProcess):
            living = sum(cpu_seconds(child.pid) for child in postmaster.children(recursive=True))
            own = postmaster.cpu_times()
            return float(own.user + own.system + own.children_user + own.children_system) + living
