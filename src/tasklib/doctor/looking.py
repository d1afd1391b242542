"""Looks at everything there is to judge, through one connection, and changes nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tasklib.core.schedule import Schedule
from tasklib.core.task import WorkerInfo
from tasklib.storage.operations import controls, schedules, workers
from tasklib.storage.operations.clock import read_clock
from tasklib.storage.operations.controls import Limit, Pause
from tasklib.storage.statement import Operation, Row, Statement


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that was looked at."""

    dialect: str
    now: datetime
    waiting: Sequence[Row]
    workers: Sequence[WorkerInfo]
    pauses: Sequence[Pause]
    limits: Sequence[Limit]
    schedules: Sequence[Schedule]
    orphans: int
    parts: frozenset[str]
    """The indexes and triggers of the task table that are in use."""
    server: Row | None
    """How a PostgreSQL server and its table are set; None for a file."""
    local_clock: float
    """This machine's clock at the moment the server was asked for its own."""


def look(dialect: str, now: datetime | None) -> Operation[Seen]:
    """See everything as it is."""
    clock = yield from read_clock(now)
    before = time.time()
    server = (yield Statement("look_at_server"))[0] if dialect == "postgres" else None
    local = (before + time.time()) / 2
    return Seen(
        dialect=dialect,
        now=clock,
        waiting=(yield Statement("look_at_waiting", {"now": now})),
        workers=(yield from workers.list_workers(now)),
        pauses=(yield from controls.list_pauses()),
        limits=(yield from controls.list_limits(now)),
        schedules=(yield from schedules.list_schedules()),
        orphans=(yield Statement("look_for_orphans", {"now": now}))[0]["count"],
        parts=frozenset(row["name"] for row in (yield Statement("look_at_parts"))),
        server=server,
        local_clock=local,
    )
