"""What waits, seen from outside: which task has been due the longest."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tasklib.storage.rows import moment, uuid
from tasklib.storage.statement import Operation, Statement


@dataclass(frozen=True, slots=True)
class Oldest:
    """The task that has been due the longest."""

    id: UUID
    name: str
    due_at: datetime


def find_oldest_waiting(now: datetime | None) -> Operation[Oldest | None]:
    """The task that has been due the longest, or None; costs as much as there are names, not as there are tasks."""
    rows = yield Statement("find_oldest_waiting", {"now": now})
    if not rows:
        return None
    due = moment(rows[0]["due_at"])
    assert due is not None
    return Oldest(uuid(rows[0]["id"]), rows[0]["name"], due)
