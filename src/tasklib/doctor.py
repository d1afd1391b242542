"""What is wrong with a queue, and what to do about it: each finding with what was seen and its remedy."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tasklib.errors import SchemaError
from tasklib.queue import TaskQueue
from tasklib.schedule import Schedule
from tasklib.storage.operations import controls, schedules, workers
from tasklib.storage.operations.controls import Limit, Pause
from tasklib.storage.statement import Operation, Row, Statement
from tasklib.task import WorkerInfo

OBJECTS: Final[Mapping[str, tuple[str, ...]]] = {
    "postgres": (
        "tasks_pkey",
        "tasks_claim",
        "tasks_seq",
        "tasks_live_key",
        "tasks_trouble",
        "tasks_wake",
        "tasks_deleted",
    ),
    "sqlite": ("tasks_claim", "tasks_live_key", "tasks_trouble", "tasks_deleted"),
}
"""The indexes and triggers without which the queue is slow or its counts are wrong."""
OLDEST_SQLITE: Final = (3, 40)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong."""

    code: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Patience:
    """From when on something counts as wrong."""

    behind_seconds: float = 600.0
    paused_seconds: float = 3600.0
    transaction_seconds: float = 300.0
    skew_seconds: float = 2.0
    late_schedule_seconds: float = 300.0
    drain_seconds: float = 86_400.0
    dead_rows: int = 100_000


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that was looked at."""

    now: datetime
    waiting: Sequence[Row]
    workers: Sequence[WorkerInfo]
    pauses: Sequence[Pause]
    limits: Sequence[Limit]
    schedules: Sequence[Schedule]
    orphans: int
    objects: frozenset[str]
    server: Row | None
    journal_mode: str | None
    local_clock: float


def examine(queue: TaskQueue, patience: Patience | None = None) -> list[Finding]:
    """Everything that is wrong with the queue; an empty list is a clean bill of health."""
    patience = patience or Patience()
    if queue.config.is_sqlite and sqlite3.sqlite_version_info < OLDEST_SQLITE:
        text = f"SQLite {sqlite3.sqlite_version} is older than {'.'.join(map(str, OLDEST_SQLITE))}"
        return [Finding("old-sqlite", text, "use a newer Python, or a system with a newer SQLite")]
    try:
        with TaskQueue(queue.config.with_(auto_migrate=False), clock=queue.clock) as checked:
            checked.pauses()
    except SchemaError as error:
        return [Finding("schema-behind", str(error), "tasklib migrate")]
    dialect = "sqlite" if queue.config.is_sqlite else "postgres"
    seen = queue.database.run(lambda: _look(dialect, queue.clock.now()))
    return list(_judge(seen, dialect, patience))


def _look(dialect: str, now: datetime | None) -> Operation[Seen]:
    clock = yield from schedules.read_clock(now)
    server = file = None
    before = time.time()
    if dialect == "postgres":
        server = (yield Statement("look_at_server"))[0]
    else:
        file = (yield Statement("look_at_file"))[0]["journal_mode"]
    local = (before + time.time()) / 2
    return Seen(
        now=clock,
        waiting=(yield Statement("look_at_waiting", {"now": now})),
        workers=(yield from workers.list_workers(now)),
        pauses=(yield from controls.list_pauses()),
        limits=(yield from controls.list_limits(now)),
        schedules=(yield from schedules.list_schedules()),
        orphans=(yield Statement("look_for_orphans", {"now": now}))[0]["count"],
        objects=frozenset(row["name"] for row in (yield Statement("look_at_objects"))),
        server=server,
        journal_mode=file,
        local_clock=local,
    )


def _judge(seen: Seen, dialect: str, patience: Patience) -> Iterator[Finding]:
    yield from _judge_workers(seen, patience)
    yield from _judge_control(seen, patience)
    yield from _judge_table(seen, dialect)
    if seen.server is not None:
        yield from _judge_server(seen.server, seen.local_clock, patience)
    if seen.journal_mode is not None:
        yield from _judge_file(seen.journal_mode)


def _judge_workers(seen: Seen, patience: Patience) -> Iterator[Finding]:
    alive = [worker for worker in seen.workers if worker.alive]
    for worker in (worker for worker in seen.workers if not worker.alive):
        silent = _since(seen.now, worker.heartbeat_at)
        text = f"worker {worker.worker_id} on {worker.host} has not been heard for {silent}"
        yield Finding("dead-worker", text, "start a worker: it takes over what the dead one held, and forgets it")
    for row in seen.waiting:
        name, count = row["name"], row["count"]
        known = sum(name in worker.names for worker in alive)
        paused = any(pause.name in (None, name) for pause in seen.pauses)
        if not known:
            text = f"{count:,} tasks of type {name!r} are due, and no live worker knows it"
            yield Finding("no-worker", text, f"start a worker with the module that defines {name!r}")
        elif not paused and row["behind"] > patience.behind_seconds:
            text = f"{count:,} tasks of type {name!r} are due, the first since {_duration(row['behind'])}"
            yield Finding("far-behind", text, "start more workers, or raise --concurrency; see: tasklib top")
    if seen.orphans:
        text = f"{seen.orphans:,} running tasks are held by nobody, and their lease has passed"
        yield Finding("orphans", text, "start a worker: it puts them back when it starts")


def _judge_control(seen: Seen, patience: Patience) -> Iterator[Finding]:
    for pause in seen.pauses:
        if seen.now - pause.since > timedelta(seconds=patience.paused_seconds):
            what = "everything" if pause.name is None else repr(pause.name)
            text = f"{what} is paused since {_since(seen.now, pause.since)}, by {pause.by or 'somebody'}"
            yield Finding("paused-long", text, f"tasklib resume {'' if pause.name is None else pause.name}".strip())
    due = {row["name"]: row["count"] for row in seen.waiting}
    for limit in seen.limits:
        count = sum(due.values()) if limit.name is None else due.get(limit.name, 0)
        if limit.rate and count / limit.rate > patience.drain_seconds:
            what = "all tasks" if limit.name is None else repr(limit.name)
            needed = _duration(count / limit.rate)
            text = f"at {limit.rate:g} tasks a second the {count:,} due of {what} take {needed}"
            remedy = f"raise the limit: tasklib rate-limit N {'' if limit.name is None else limit.name}"
            yield Finding("limit-too-low", text, remedy.strip())
    for schedule in seen.schedules:
        late = None if schedule.next_run_at is None else (seen.now - schedule.next_run_at).total_seconds()
        if schedule.paused_at is None and late is not None and late > patience.late_schedule_seconds:
            text = f"schedule {schedule.plan.name!r} should have run {_duration(late)} ago"
            yield Finding("schedule-late", text, "start a worker: workers run schedules")


def _judge_table(seen: Seen, dialect: str) -> Iterator[Finding]:
    for name in OBJECTS[dialect]:
        if name not in seen.objects:
            kind = "trigger" if name in ("tasks_wake", "tasks_deleted") else "index"
            text = f"the {kind} {name} is missing, invalid or switched off"
            file = "0005_numbers" if name == "tasks_deleted" else "0001_initial"
            yield Finding(f"missing-{kind}", text, f"make it again as in the migration {file}.sql")


def _judge_server(server: Row, local: float, patience: Patience) -> Iterator[Finding]:
    skew = local - server["clock"]
    if abs(skew) > patience.skew_seconds:
        way = "ahead of" if skew > 0 else "behind"
        text = f"this machine's clock is {abs(skew):.1f} s {way} the database's"
        yield Finding("clock-skew", text, "let both keep time by NTP")
    oldest = server["oldest_transaction"]
    if oldest is not None and oldest > patience.transaction_seconds:
        text = f"a transaction (pid {server['oldest_pid']}) is open for {_duration(oldest)} and holds back vacuum"
        yield Finding("long-transaction", text, f"end it: SELECT pg_terminate_backend({server['oldest_pid']})")
    if server["dead"] > max(patience.dead_rows, server["live"]):
        text = f"the task table has {server['dead']:,} dead rows to {server['live']:,} live ones"
        yield Finding("bloat", text, "VACUUM (ANALYZE) tasks; and find what kept autovacuum from it")
    if not server["autovacuum"]:
        yield Finding(
            "autovacuum-off",
            "autovacuum is off for the task table",
            "set autovacuum = on, and: ALTER TABLE tasks RESET (autovacuum_enabled)",
        )
    if not server["durable"]:
        text = "fsync or synchronous_commit is off: a crash of the server loses acknowledged tasks"
        yield Finding("not-durable", text, "set fsync = on and synchronous_commit = on")
    if not server["logged"]:
        text = "the task table is unlogged: a crash of the server empties it"
        yield Finding("unlogged", text, "make it durable: ALTER TABLE tasks SET LOGGED")


def _judge_file(journal_mode: str) -> Iterator[Finding]:
    if journal_mode not in ("wal", "memory"):
        text = f"the file's journal mode is {journal_mode}: readers and the writer wait for each other"
        yield Finding("not-wal", text, "PRAGMA journal_mode = WAL, on a local disk")


def _since(now: datetime, moment: datetime) -> str:
    return _duration((now.astimezone(UTC) - moment).total_seconds())


def _duration(seconds: Any) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
