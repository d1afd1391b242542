"""Copying a queue: its tasks from one database to another, in insertion order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tasklib.core.codec import dumps, loads
from tasklib.storage.rows import moment, moment_text
from tasklib.storage.statement import Operation, Row, Statement

STEP = 500
MOMENTS = (
    *("scheduled_at", "started_at", "completed_at", "created_at", "updated_at"),
    *("next_retry_at", "expires_at", "cancel_requested_at"),
)
DOCUMENTS = ("args", "kwargs", "tags", "headers", "result", "history", "log")
PLAIN = (
    *("id", "name", "state", "timeout_seconds", "progress", "priority", "version", "attempts", "retry_count"),
    *("max_retries", "lost_count", "error", "progress_message", "finished_by", "unique_key", "concurrency_key"),
    *("waits_for", "marks"),
)


@dataclass(frozen=True, slots=True)
class Exported:
    """Some tasks as they are stored."""

    rows: list[dict[str, Any]]
    last: int
    """The position to continue from."""
    unreadable: list[str] = field(default_factory=list[str])
    """The ids of those that cannot be read, and so not be copied."""


def export_tasks(after: int) -> Operation[Exported]:
    """The next tasks after a position; running ones become waiting ones, their attempt not spent."""
    rows = yield Statement("export_tasks", {"after": after, "limit": STEP})
    found = Exported([], rows[-1]["seq"] if rows else after)
    for row in rows:
        try:
            found.rows.append(_exported(row))
        except ValueError:
            found.unreadable.append(str(row["id"]))
    return found


def import_tasks(rows: Sequence[dict[str, Any]]) -> Operation[int]:
    """Store tasks of another database, except those whose id exists already; how many were new."""
    return len((yield Statement("import_tasks", {"batch": dumps(list(rows))})))


def _exported(row: Row) -> dict[str, Any]:
    data = {name: row[name] for name in PLAIN}
    data["id"] = str(data["id"])
    for name in MOMENTS:
        at = moment(row[name])
        data[name] = None if at is None else moment_text(at)
    for name in DOCUMENTS:
        data[name] = None if row[name] is None else loads(row[name])
    dumps(data)  # an infinite number can be read but not written
    if data["state"] == "running":
        data |= {"state": "pending", "attempts": data["attempts"] - 1, "cancel_requested_at": None}
        data |= {"progress": None, "progress_message": None}
    return data
