"""The evidence for the doctor: everything about a queue that can be wrong, read without changing anything."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tasklib.core.limits import Limit, Pause
from tasklib.core.queue_info import WorkerInfo
from tasklib.core.schedule import Schedule
from tasklib.queue.sync_async import operation
from tasklib.service.base import ServicePart
from tasklib.storage.migrate import Part, parts
from tasklib.storage.operations import schedules, workers
from tasklib.storage.operations.clock import read_clock
from tasklib.storage.operations.limits import pauses
from tasklib.storage.sqlite.database import OLDEST, SqliteDatabase
from tasklib.storage.sqlite.files import find_replaced, has_write_ahead_log
from tasklib.storage.statement import Operation, Statement

Row = Mapping[str, Any]

OLDEST_SQLITE: Final = ".".join(map(str, OLDEST))


@dataclass(frozen=True, slots=True)
class Observations:
    """Everything that the doctor judges, as read at one moment."""

    now: datetime
    waiting: Sequence[Row]
    workers: Sequence[WorkerInfo]
    pauses: Sequence[Pause]
    limits: Sequence[Limit]
    schedules: Sequence[Schedule]
    orphans: int
    missing: Sequence[Part]
    """The indexes and triggers of the task table that are missing or not in use."""
    server: Row | None
    """How a PostgreSQL server and its table are set; None for a file."""
    local_clock: float
    """This machine's clock when the server's was read."""


class Evidence(ServicePart):
    """Gathers the evidence about one queue."""

    @operation
    def look(self) -> Operation[Observations]:
        """Read everything through one connection."""
        dialect = self.database.dialect
        clock = yield from read_clock()
        before = time.time()
        server = (yield Statement("look_at_server"))[0] if dialect == "postgres" else None
        local = (before + time.time()) / 2
        used = {row["name"] for row in (yield Statement("look_at_parts"))}
        return Observations(
            now=clock,
            waiting=(yield Statement("look_at_waiting")),
            workers=(yield from workers.list_workers()),
            pauses=(yield from pauses.list_pauses()),
            limits=(yield from pauses.list_limits()),
            schedules=(yield from schedules.list_schedules()),
            orphans=(yield Statement("look_for_orphans"))[0]["count"],
            missing=[part for part in parts(dialect) if part.name not in used],
            server=server,
            local_clock=local,
        )

    @operation
    def has_alembic(self) -> Operation[bool]:
        """Whether Alembic keeps its version in the schema or file of our tables."""
        found: int = (yield Statement("look_for_alembic"))[0]["count"]
        return found > 0

    def replaced_file(self) -> tuple[str, bool] | None:
        """The process that uses a SQLite file that was deleted or replaced, and whether another file has its name."""
        return find_replaced(self.database.path) if isinstance(self.database, SqliteDatabase) else None

    def has_write_ahead_log(self) -> bool:
        """False for a SQLite file with another journal mode."""
        return not isinstance(self.database, SqliteDatabase) or has_write_ahead_log(self.database.path)


def is_sqlite_too_old() -> bool:
    """Whether the SQLite of this Python is older than OLDEST_SQLITE."""
    return sqlite3.sqlite_version_info < OLDEST


def lends_sessions(url: str, timeout_seconds: float) -> bool:
    """Whether there is a pooler in transaction mode between this machine and the server of the URL."""
    from tasklib.storage.postgres import session

    return session.lends_sessions(url, timeout_seconds)
