"""From evidence to findings: each fault with its evidence and its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from tasklib.service.evidence import Observations, Row


class Fault(StrEnum):
    """Every fault; `docs/production/troubleshooting.md` explains each one."""

    FOREIGN_PACKAGE = "foreign-package"
    OLD_SQLITE = "old-sqlite"
    NOT_WAL = "not-wal"
    REPLACED_FILE = "replaced-file"
    SCHEMA_BEHIND = "schema-behind"
    SCHEMA_MISMATCH = "schema-mismatch"
    POOLER_PREPARED = "pooler-prepared"
    POOLER_LISTEN = "pooler-listen"
    DEAD_WORKER = "dead-worker"
    NO_WORKER = "no-worker"
    FAR_BEHIND = "far-behind"
    ORPHANS = "orphans"
    PAUSED_LONG = "paused-long"
    LIMIT_TOO_LOW = "limit-too-low"
    SCHEDULE_LATE = "schedule-late"
    MISSING_INDEX = "missing-index"
    MISSING_TRIGGER = "missing-trigger"
    CLOCK_SKEW = "clock-skew"
    LONG_TRANSACTION = "long-transaction"
    BLOAT = "bloat"
    AUTOVACUUM_OFF = "autovacuum-off"
    NOT_DURABLE = "not-durable"
    UNLOGGED = "unlogged"
    BESIDE_ALEMBIC = "beside-alembic"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong."""

    code: Fault
    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From which values on something is a fault."""

    behind_seconds: float = 600.0
    paused_seconds: float = 3600.0
    transaction_seconds: float = 300.0
    skew_seconds: float = 2.0
    late_schedule_seconds: float = 300.0
    drain_seconds: float = 86_400.0
    dead_rows: int = 100_000


def judge(seen: Observations, thresholds: Thresholds) -> Iterator[Finding]:
    """Everything that is wrong with what was seen, by subject."""
    yield from _judge_workers(seen)
    yield from _judge_waiting(seen, thresholds)
    yield from _judge_pauses(seen, thresholds)
    yield from _judge_limits(seen, thresholds)
    yield from _judge_schedules(seen, thresholds)
    yield from _judge_parts(seen)
    if seen.server is not None:
        yield from _judge_clock(seen.server, seen.local_clock, thresholds)
        yield from _judge_vacuum(seen.server, thresholds)
        yield from _judge_durability(seen.server)


def _judge_workers(seen: Observations) -> Iterator[Finding]:
    for worker in (worker for worker in seen.workers if not worker.alive):
        silent = _since(seen.now, worker.heartbeat_at)
        text = f"worker {worker.worker_id} on {worker.host} has sent no heartbeat for {silent}"
        yield Finding(Fault.DEAD_WORKER, text, "start a worker: it recovers the tasks of the dead one and removes it")
    if seen.orphans:
        text = f"{seen.orphans:,} running tasks are held by no worker, and their lease has expired"
        yield Finding(Fault.ORPHANS, text, "start a worker: it recovers them when it starts")


def _judge_waiting(seen: Observations, thresholds: Thresholds) -> Iterator[Finding]:
    taken = {name for worker in seen.workers for name in worker.names if worker.takes(name)}
    paused = {pause.name for pause in seen.pauses}
    for row in seen.waiting:
        name, one = row["name"], row["count"] == 1
        due = f"1 task of type {name!r} is due" if one else f"{row['count']:,} tasks of type {name!r} are due"
        if name not in taken:
            remedy = f"start a worker with the module that defines {name!r}"
            yield Finding(Fault.NO_WORKER, f"{due}, and no live worker takes it", remedy)
        elif not paused & {None, name} and row["behind"] > thresholds.behind_seconds:
            remedy = "start more workers, or raise --concurrency; see: tasklib top"
            yield Finding(Fault.FAR_BEHIND, f"{due}, the first for {_duration(row['behind'])}", remedy)


def _judge_pauses(seen: Observations, thresholds: Thresholds) -> Iterator[Finding]:
    for pause in seen.pauses:
        if seen.now - pause.since > timedelta(seconds=thresholds.paused_seconds):
            what = "everything" if pause.name is None else repr(pause.name)
            text = f"{what} has been paused for {_since(seen.now, pause.since)}, by {pause.by or 'an unknown user'}"
            yield Finding(Fault.PAUSED_LONG, text, f"tasklib resume {pause.name or ''}".rstrip())


def _judge_limits(seen: Observations, thresholds: Thresholds) -> Iterator[Finding]:
    due = {row["name"]: row["count"] for row in seen.waiting}
    for limit in seen.limits:
        count = sum(due.values()) if limit.name is None else due.get(limit.name, 0)
        if limit.rate and count / limit.rate > thresholds.drain_seconds:
            what = "all tasks" if limit.name is None else repr(limit.name)
            text = f"at {limit.rate:g} tasks a second the {count:,} due of {what} take {_duration(count / limit.rate)}"
            remedy = f"raise the limit: tasklib rate-limit N {limit.name or ''}".rstrip()
            yield Finding(Fault.LIMIT_TOO_LOW, text, remedy)


def _judge_schedules(seen: Observations, thresholds: Thresholds) -> Iterator[Finding]:
    for schedule in seen.schedules:
        late = None if schedule.next_run_at is None else (seen.now - schedule.next_run_at).total_seconds()
        if schedule.paused_at is None and late is not None and late > thresholds.late_schedule_seconds:
            text = f"schedule {schedule.plan.name!r} should have run {_duration(late)} ago"
            yield Finding(Fault.SCHEDULE_LATE, text, "start a worker: workers run schedules")


def _judge_parts(seen: Observations) -> Iterator[Finding]:
    faults = {"index": Fault.MISSING_INDEX, "trigger": Fault.MISSING_TRIGGER}
    for part in seen.missing:
        text = f"the {part.kind} {part.name} is missing, invalid or switched off"
        yield Finding(faults[part.kind], text, f"create it again as in the migration {part.migration}.sql")


def _judge_clock(server: Row, local: float, thresholds: Thresholds) -> Iterator[Finding]:
    skew = local - server["clock"]
    if abs(skew) > thresholds.skew_seconds:
        way = "ahead of" if skew > 0 else "behind"
        text = f"this machine's clock is {abs(skew):.1f} s {way} the database's"
        yield Finding(Fault.CLOCK_SKEW, text, "synchronise both by NTP")


def _judge_vacuum(server: Row, thresholds: Thresholds) -> Iterator[Finding]:
    oldest, pid = server["oldest_transaction"], server["oldest_pid"]
    if oldest is not None and oldest > thresholds.transaction_seconds:
        text = f"a transaction (pid {pid}) has been open for {_duration(oldest)} and holds back vacuum"
        yield Finding(Fault.LONG_TRANSACTION, text, f"end it: SELECT pg_terminate_backend({pid})")
    if server["dead"] > max(thresholds.dead_rows, server["live"]):
        text = f"the task table has {server['dead']:,} dead rows to {server['live']:,} live ones"
        yield Finding(Fault.BLOAT, text, "VACUUM (ANALYZE) tasks; and find out what held back autovacuum")
    if not server["autovacuum"]:
        remedy = "set autovacuum = on, and: ALTER TABLE tasks RESET (autovacuum_enabled)"
        yield Finding(Fault.AUTOVACUUM_OFF, "autovacuum is off for the task table", remedy)


def _judge_durability(server: Row) -> Iterator[Finding]:
    if not server["durable"]:
        text = "fsync or synchronous_commit is off: a crash of the server loses acknowledged tasks"
        yield Finding(Fault.NOT_DURABLE, text, "set fsync = on and synchronous_commit = on")
    if not server["logged"]:
        text = "the task table is unlogged: a crash of the server empties it"
        yield Finding(Fault.UNLOGGED, text, "make it durable: ALTER TABLE tasks SET LOGGED")


def _since(now: datetime, moment: datetime) -> str:
    return _duration((now.astimezone(UTC) - moment).total_seconds())


def _duration(seconds: Any) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
