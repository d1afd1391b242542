"""Which workload is measured for whom, and the goal its ratio is held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench import beside, crowded, workloads
from bench.peer import POSTGRES, RAW, REDIS, SQLITE, TASKLIB, TASKLIB_SQLITE, Peer
from bench.place import Places
from bench.workloads import Figures

Run = Callable[[Places, Peer, int], Figures]


@dataclass(frozen=True, slots=True)
class Workload:
    """One row of the goals: what is run, for whom, how much of it, and what its main figure is."""

    key: str
    title: str
    run: Run
    peers: tuple[Peer, ...]
    count: int | None
    """How many tasks; None for what each peer is given to drain."""
    figure: str
    unit: str
    columns: tuple[str, ...]
    times: float = 1.0
    """How often what each peer is given to drain."""
    least: int = 20

    def size(self, peer: Peer, share: float) -> int:
        """How many tasks for this peer, at this share of the full length."""
        count = peer.tasks * self.times if self.count is None else self.count
        return max(self.least, round(count * share))


def two(places: Places, peer: Peer, count: int) -> Figures:
    """A drain by two worker processes."""
    return workloads.drain(places, peer, count, workers=2)


def threads(places: Places, peer: Peer, count: int) -> Figures:
    """A drain of plain functions."""
    return workloads.drain(places, peer, count, kind="thread" if peer.program == TASKLIB.program else "")


def processes(places: Places, peer: Peer, count: int) -> Figures:
    """A drain of functions in child processes."""
    return workloads.drain(places, peer, count, kind="process" if peer.program == TASKLIB.program else "")


RATE = ("per_second", "/s")
CPU = ("worker_us", "server_us", "wal_bytes", "memory_mib")
TIMES = ("p50_ms", "p99_ms", "producer_us", "server_us")
CREATED = ("submit_per_second", "of_submit")
WAKING = tuple(peer for peer in POSTGRES if peer is not RAW)
WORKLOADS = (
    Workload("P1", "sequential submits", workloads.single, POSTGRES, 3_000, "per_second", "/s", TIMES),
    Workload("P2", "100 concurrent submits", workloads.merged, (TASKLIB,), 30_000, "per_second", "/s", TIMES),
    Workload("P4", "drain of 200,000, one worker process", workloads.drain, POSTGRES, None, *RATE, CPU, times=2),
    Workload("P4s", "drain of 50,000, one worker process", workloads.drain, POSTGRES, None, *RATE, CPU, times=0.5),
    Workload("P5", "drain of 200,000, two worker processes", two, POSTGRES, None, *RATE, CPU, times=2),
    Workload("P5s", "drain of 50,000, two worker processes", two, POSTGRES, None, *RATE, CPU, times=0.5),
    Workload("P6", "drain, plain functions in threads", threads, (TASKLIB, *REDIS), None, "per_second", "/s", CPU),
    Workload("P6p", "drain, child processes", processes, (TASKLIB, REDIS[0]), 10_000, "per_second", "/s", CPU),
    Workload(
        "P8",
        "wake-up of an idle worker",
        workloads.latency,
        WAKING,
        200,
        "p50_ms",
        " ms",
        ("p95_ms", "p99_ms", "worker_us", "server_us"),
    ),
    Workload("P9", "drain among 12,000,000 other rows", crowded.among_many, (TASKLIB,), None, "per_second", "/s", CPU),
    Workload(
        "P10",
        "drain of 1,000,000 under a held snapshot, the last fifth",
        crowded.under_a_snapshot,
        (TASKLIB,),
        None,
        "per_second",
        "/s",
        ("whole_per_second",),
    ),
    Workload(
        "P11",
        "drain beside submits, dashboards and removal",
        crowded.beside_others,
        (TASKLIB,),
        None,
        "per_second",
        "/s",
        CPU,
    ),
    Workload(
        "P12",
        "an idle worker, seconds",
        workloads.idle,
        WAKING,
        60,
        "cpu_percent",
        " %",
        ("queries_per_second", "memory_mib"),
        least=5,
    ),
    Workload("P13", "SQLite: sequential submits", workloads.blocking, SQLITE, 3_000, "per_second", "/s", TIMES),
    Workload("P13a", "SQLite: awaited submits", workloads.single, (TASKLIB_SQLITE,), 3_000, "per_second", "/s", TIMES),
    Workload(
        "P13m", "SQLite: 100 concurrent submits", workloads.merged, (TASKLIB_SQLITE,), 20_000, "per_second", "/s", TIMES
    ),
    Workload(
        "P13d",
        "SQLite: drain, one process",
        workloads.drain,
        SQLITE,
        None,
        "per_second",
        "/s",
        ("bulk_per_second", *CPU),
    ),
    Workload("P13t", "SQLite: drain, two processes", two, SQLITE, None, "per_second", "/s", ("bulk_per_second", *CPU)),
    Workload(
        "P14",
        "1,000 idle workers beside 100 tasks a second",
        beside.idle_fleet,
        (TASKLIB,),
        1_000,
        "server_percent",
        " %",
        ("of_ten_workers", "done_per_second", "claims_per_second", "lock_waits"),
    ),
    Workload("H1", "HTTP: create, one caller", beside.http_one, (TASKLIB,), 5, *RATE, CREATED, least=1),
    Workload("H64", "HTTP: create, 64 callers", beside.http_many, (TASKLIB,), 5, *RATE, CREATED, least=1),
)


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on a ratio of two figures of the same run."""

    key: str
    says: str
    mine: tuple[str, str, str]
    """Workload, peer and figure; BEST for whichever rival did best in the run."""
    theirs: tuple[str, str, str] | None
    least: float | None = None
    most: float | None = None


BEST = "the best rival"
GRAPHILE, PGQUEUER, HUEY, SAFE_HUEY = "graphile-worker", "PgQueuer", "Huey", "Huey, fsync"
OURS, LITE = TASKLIB.name, TASKLIB_SQLITE.name
MAIN = ("per_second",)
GOALS = (
    Goal("P1", "submit ≥ 0.85 × a bare INSERT", ("P1", OURS, "per_second"), ("P1", RAW.name, "per_second"), 0.85),
    Goal("P2", "merged ≥ 8 × P1", ("P2", OURS, "per_second"), ("P1", OURS, "per_second"), 8),
    Goal("P3", "bulk ≥ 1.5 × the best rival", ("P4", OURS, "bulk_per_second"), ("P4", BEST, "bulk_per_second"), 1.5),
    Goal("P4", "drain ≥ 2.5 × PgQueuer", ("P4", OURS, "per_second"), ("P4", PGQUEUER, "per_second"), 2.5),
    Goal("P4", "drain ≥ 1.15 × graphile-worker", ("P4", OURS, "per_second"), ("P4", GRAPHILE, "per_second"), 1.15),
    Goal("P4", "of 50,000 ≥ 1.15 × graphile-worker", ("P4s", OURS, *MAIN), ("P4s", GRAPHILE, *MAIN), 1.15),
    Goal("P5", "two workers ≥ 1.15 × graphile-worker", ("P5", OURS, *MAIN), ("P5", GRAPHILE, *MAIN), 1.15),
    Goal("P5", "of 50,000 ≥ 1.15 × graphile-worker", ("P5s", OURS, *MAIN), ("P5s", GRAPHILE, *MAIN), 1.15),
    Goal("P6", "threads ≥ 25,000/s", ("P6", OURS, "per_second"), None, 25_000),
    Goal("P6", "threads ≥ 3 × Celery prefork", ("P6", OURS, "per_second"), ("P6", "Celery", "per_second"), 3),
    Goal("P6", "processes ≥ 15,000/s", ("P6p", OURS, "per_second"), None, 15_000),
    Goal("P6", "processes ≥ 3 × Celery prefork", ("P6p", OURS, "per_second"), ("P6p", "Celery", "per_second"), 3),
    Goal("P7", "CPU ≤ 0.9 × graphile-worker", ("P4", OURS, "cpu_us"), ("P4", GRAPHILE, "cpu_us"), most=0.9),
    Goal("P7", "worker ≤ 13 µs of CPU", ("P4", OURS, "worker_us"), None, most=13),
    Goal("P7", "server ≤ 13 µs of CPU", ("P4", OURS, "server_us"), None, most=13),
    Goal("P8", "wake-up p50 ≤ 0.6 × the best rival", ("P8", OURS, "p50_ms"), ("P8", BEST, "p50_ms"), most=0.6),
    Goal("P8", "wake-up p99 ≤ 0.7 × the best rival", ("P8", OURS, "p99_ms"), ("P8", BEST, "p99_ms"), most=0.7),
    Goal("P9", "among other rows ≥ 0.9 × P4", ("P9", OURS, "per_second"), ("P4", OURS, "per_second"), 0.9),
    Goal("P10", "under a snapshot ≥ 0.8 × P4", ("P10", OURS, "per_second"), ("P4", OURS, "per_second"), 0.8),
    Goal("P11", "beside others ≥ 0.9 × P4", ("P11", OURS, "per_second"), ("P4", OURS, "per_second"), 0.9),
    Goal("P12", "idle ≤ 1 query/s", ("P12", OURS, "queries_per_second"), None, most=1),
    Goal("P12", "idle ≤ 0.3 % of a core", ("P12", OURS, "cpu_percent"), None, most=0.3),
    Goal("P12", "idle ≤ 60 MiB", ("P12", OURS, "memory_mib"), None, most=60),
    Goal(
        "P13", "lone submit ≥ 0.9 × Huey with fsync", ("P13", LITE, "per_second"), ("P13", SAFE_HUEY, "per_second"), 0.9
    ),
    Goal(
        "P13", "merged submit ≥ 4 × Huey with fsync", ("P13m", LITE, "per_second"), ("P13", SAFE_HUEY, "per_second"), 4
    ),
    Goal(
        "P13",
        "bulk submit ≥ 4 × Huey with fsync",
        ("P13d", LITE, "bulk_per_second"),
        ("P13", SAFE_HUEY, "per_second"),
        4,
    ),
    Goal("P13", "drain ≥ 4 × Huey with fsync", ("P13d", LITE, "per_second"), ("P13d", SAFE_HUEY, "per_second"), 4),
    Goal("P13", "drain ≥ 0.8 × Huey without fsync", ("P13d", LITE, "per_second"), ("P13d", HUEY, "per_second"), 0.8),
    Goal(
        "P13",
        "two processes ≥ 0.8 × Huey without fsync",
        ("P13t", LITE, "per_second"),
        ("P13t", HUEY, "per_second"),
        0.8,
    ),
    Goal("P14", "1,000 workers: server's CPU ≤ 1.5 × that of 10", ("P14", OURS, "of_ten_workers"), None, most=1.5),
    Goal("P14", "no lock waited for longer than 10 ms", ("P14", OURS, "lock_waits"), None, most=0),
    Goal("HTTP", "create, one caller ≥ 0.85 × submit", ("H1", OURS, "of_submit"), None, 0.85),
    Goal("HTTP", "create, 64 callers ≥ 1.2 × submit", ("H64", OURS, "of_submit"), None, 1.2),
)
