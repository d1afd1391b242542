"""The systems measured: how each is started, what shows that it is done, and what it does not do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["postgres", "sqlite", "redis"]


@dataclass(frozen=True, slots=True)
class Peer:
    """One system, with the settings its own documentation recommends for speed."""

    name: str
    program: str
    """A module of `bench.peers`, or a file for Node."""
    kind: Kind
    package: str
    """Where its version is found; empty for what is not a package."""
    tasks: int
    """How many it is given to drain at full length; slow ones get fewer, so that a round stays short."""
    settings: str
    lacks: str
    unfinished: str = ""
    """How many of its tasks are not done yet, in SQL; without it the calls of the handler count."""
    suffix: str = ""
    """What is added to its address."""
    source: str = ""
    """The tree whose package and programs are run; empty for this one."""


TASKLIB_UNFINISHED = "SELECT count(*) FROM tasks WHERE completed_at IS NULL"
TASKLIB = Peer(
    "tasklib",
    "tasklib",
    "postgres",
    "tasklib",
    100_000,
    "defaults, concurrency 100; 2 child processes",
    "",
    TASKLIB_UNFINISHED,
)
RAW = Peer(
    "raw SQL",
    "raw",
    "postgres",
    "",
    100_000,
    "hand-written claim and finish, batches of 500",
    "no limits, recovery, retries, wake-up, checks",
    TASKLIB_UNFINISHED,
)
POSTGRES = (
    TASKLIB,
    RAW,
    Peer(
        "PgQueuer",
        "pgqueuer",
        "postgres",
        "pgqueuer",
        100_000,
        "asyncpg, uvloop, batch_size 500",
        "keeps a log line instead of the row, no results, no retries by default",
        "SELECT count(*) FROM pgqueuer",
    ),
    Peer(
        "Procrastinate",
        "procrastinate",
        "postgres",
        "procrastinate",
        3_000,
        "psycopg, concurrency 20",
        "no results, no fencing",
        "SELECT count(*) FROM procrastinate_jobs WHERE status <> 'succeeded'",
    ),
    Peer(
        "graphile-worker",
        "graphile.mjs",
        "postgres",
        "graphile-worker",
        100_000,
        "24 at once, localQueue 2000, completeJobBatchDelay 0",
        "deletes finished rows, no results, no history",
        "SELECT count(*) FROM graphile_worker.jobs",
    ),
    Peer(
        "pg-boss",
        "pgboss.mjs",
        "postgres",
        "pg-boss",
        100_000,
        "batchSize 1000, localConcurrency 2, burstWhenBatchFull, notify",
        "one call and one ending for a batch of 1,000",
        "SELECT count(*) FROM pgboss.job WHERE name = 'noop' AND state <> 'completed'",
    ),
)
TASKLIB_SQLITE = Peer(
    "tasklib on SQLite",
    "tasklib",
    "sqlite",
    "tasklib",
    50_000,
    "defaults (synchronous=FULL), concurrency 100",
    "",
    TASKLIB_UNFINISHED,
)
SQLITE = (
    TASKLIB_SQLITE,
    Peer(
        "Huey, fsync",
        "huey",
        "sqlite",
        "huey",
        10_000,
        "1 thread, fsync=True",
        "deletes rows before it runs them, no results here, no recovery",
        suffix="?fsync",
    ),
    Peer(
        "Huey",
        "huey",
        "sqlite",
        "huey",
        50_000,
        "1 thread, fsync=False",
        "not durable; deletes rows before it runs them, no results here, no recovery",
    ),
)
REDIS = (
    Peer(
        "Celery",
        "celery",
        "redis",
        "celery",
        10_000,
        "prefork 2, prefetch 200, results off",
        "Redis loses up to a second; keeps no rows",
    ),
    Peer(
        "Dramatiq",
        "dramatiq",
        "redis",
        "dramatiq",
        20_000,
        "32 threads",
        "Redis loses up to a second; keeps no rows",
    ),
)
PEERS = (*POSTGRES, *SQLITE, *REDIS)
