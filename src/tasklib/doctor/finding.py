"""Findings: the faults by their codes, and their thresholds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """Every fault; `docs/production/troubleshooting.md` explains each one."""

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
