"""What is measured, once each: submitting, draining, waking up and doing nothing."""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext

import psycopg

from bench.peer import TASKLIB_UNFINISHED, Peer
from bench.place import Places
from bench.programs import Workers, produce

Figures = dict[str, float]


def single(places: Places, peer: Peer, count: int) -> Figures:
    """One producer that waits for each submission."""
    return _produce(places, peer, "single", count)


def blocking(places: Places, peer: Peer, count: int) -> Figures:
    """The same with the form that blocks its thread, as that of the rivals on SQLite does."""
    return _produce(places, peer, "blocking" if peer.program == "tasklib" else "single", count)


def merged(places: Places, peer: Peer, count: int) -> Figures:
    """One process with 100 submissions on their way at any time."""
    return _produce(places, peer, "merged", count)


def drain(
    places: Places,
    peer: Peer,
    count: int,
    *,
    workers: int = 1,
    kind: str = "",
    before: Callable[[str], None] | None = None,
    beside: Callable[[Peer, str], AbstractContextManager[None]] | None = None,
) -> Figures:
    """Submit a backlog in bulk, and run it; both are figures.  `before` fills the table, `beside` disturbs."""
    with places.fresh(peer) as address:
        prepare(peer, address)
        if before is not None:
            before(address)
        suffix = f":{kind}" if kind else ""
        bulk = produce(peer, f"bulk{suffix}", address, count)
        places.analyze(peer)
        left = Unfinished(peer, address, count)
        with beside(peer, address) if beside else nullcontext(), Workers(peer, address, workers, kind) as running:
            measured = _measure(places, peer, running, left, counted=kind != "process")
    return {"bulk_per_second": count / bulk["seconds"], **measured}


def latency(places: Places, peer: Peer, count: int) -> Figures:
    """A task every 50 ms for an idle worker: from the start of its submission to the start of its handler."""
    with places.fresh(peer) as address:
        prepare(peer, address)
        with Workers(peer, address) as running:
            _until_ready(peer, running, address)
            running.latencies.clear()
            before = running.cpu(), places.server_cpu(peer)
            produce(peer, "paced", address, count)
            _until(lambda: len(running.latencies) >= count, 10)
            after = running.cpu(), places.server_cpu(peer)
        found = sorted(running.latencies)
    worker, server = ((b - a) / count * 1e6 for a, b in zip(before, after, strict=True))
    moments = {f"p{part}_ms": found[min(len(found) - 1, int(len(found) * part / 100))] * 1e3 for part in (50, 95, 99)}
    return {**moments, "worker_us": worker, "server_us": server}


SETTLE_SECONDS = 35.0
"""Until a worker has done what it does first and has its statements prepared, and the server has looked at its new
tables."""


def idle(places: Places, peer: Peer, seconds: float) -> Figures:
    """A worker with nothing to do."""
    with places.fresh(peer) as address:
        prepare(peer, address)
        with Workers(peer, address, tick_seconds=5.0) as running:
            _until_ready(peer, running, address)
            time.sleep(SETTLE_SECONDS)
            before = running.cpu(), _transactions(places, peer)
            time.sleep(seconds)
            after = running.cpu(), _transactions(places, peer)
            return {
                "cpu_percent": (after[0] - before[0]) / seconds * 100,
                "queries_per_second": (after[1] - before[1]) / seconds,
                "memory_mib": running.memory(),
            }


def _produce(places: Places, peer: Peer, what: str, count: int) -> Figures:
    with places.fresh(peer) as address:
        prepare(peer, address)
        server = places.server_cpu(peer)
        reported = produce(peer, what, address, count)
        return {
            "per_second": count / reported["seconds"],
            "p50_ms": reported["p50"] * 1e3,
            "p99_ms": reported["p99"] * 1e3,
            "producer_us": reported["cpu"] / count * 1e6,
            "server_us": (places.server_cpu(peer) - server) / count * 1e6,
        }


def _measure(places: Places, peer: Peer, running: Workers, left: Unfinished, *, counted: bool) -> Figures:
    """From the first tasks that ran to the last that is recorded as done."""
    count = left.count
    if counted:
        running.wait(1)
        first = running.ran
    else:
        # Child processes start while the first of them run.
        _until(lambda: left() <= 0.9 * count, 60)
        first = count - left()
    before = time.monotonic(), running.cpu(), places.server_cpu(peer), places.wal(peer)
    if counted:
        running.wait(count)
    _until(lambda: left() == 0, 60)
    after = time.monotonic(), running.cpu(), places.server_cpu(peer), places.wal(peer)
    wall, worker, server, wal = (b - a for a, b in zip(before, after, strict=True))
    rest = max(1, count - first)
    return {
        "per_second": rest / wall,
        "worker_us": worker / rest * 1e6,
        "server_us": server / rest * 1e6,
        "wal_bytes": wal / rest,
        "memory_mib": running.memory(),
    }


class Unfinished:
    """How many of a backlog that was just submitted are not recorded as done."""

    def __init__(self, peer: Peer, address: str, count: int) -> None:
        self.count = count
        self._peer = peer
        self._address = address
        # Only the newest rows are looked at, so that a crowded table is not read each time.
        self._query = peer.unfinished
        if peer.unfinished == TASKLIB_UNFINISHED:
            self._query += f" AND seq > {self._ask('SELECT max(seq) FROM tasks') - count}"  # noqa: S608  a number of our own

    def __call__(self) -> int:
        return self._ask(self._query) if self._query else 0

    def _ask(self, query: str) -> int:
        if self._peer.kind == "sqlite":
            with closing(sqlite3.connect(self._address.removeprefix("sqlite:///"))) as file:
                (count,) = file.execute(query).fetchone()
                return int(count)
        with psycopg.connect(self._address, autocommit=True) as connection:
            row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return int(row[0])


def prepare(peer: Peer, address: str) -> None:
    """Make the peer's tables where it does not do so itself."""
    if peer.kind == "postgres" or peer.program == "tasklib":
        produce(peer, "setup", address)


def _until_ready(peer: Peer, running: Workers, address: str) -> None:
    """A worker is ready when it has run something."""
    produce(peer, "paced", address, 3)
    _until(lambda: len(running.latencies) >= 3, 30)


def _until(holds: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {seconds:g} s in vain")
        time.sleep(0.01)


def _transactions(places: Places, peer: Peer) -> float:
    if peer.kind != "postgres":
        return 0.0
    with psycopg.connect(places.postgres.url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'bench'"
        ).fetchone()
    return 0.0 if row is None else float(row[0])


def middle(runs: list[Figures]) -> Figures:
    """The median of each figure over the runs."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}
