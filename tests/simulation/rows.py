"""Every change of a task's row, as the database itself sees it: noted by triggers, read after each operation."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any, NamedTuple

COLUMNS = (
    "id", "name", "state", "version", "attempts", "retry_count", "max_retries", "lost_count", "next_retry_at",
    "completed_at", "cancel_requested_at", "due_at", "unique_key", "concurrency_key", "worker_id", "result", "headers",
    "history", "group_id", "waits_for", "created_at",
)  # fmt: skip


class Row(NamedTuple):
    """What is looked at of a task."""

    id: str
    name: str
    state: str
    version: int
    attempts: int
    retry_count: int
    max_retries: int
    lost_count: int
    next_retry_at: str | None
    completed_at: str | None
    cancel_requested_at: str | None
    due_at: str | None
    unique_key: str | None
    concurrency_key: str | None
    worker_id: str | None
    result: str | None
    headers: str | None
    history: str | None
    group_id: str | None
    waits_for: str | None
    created_at: str

    @property
    def phase(self) -> str:
        """Its state, with failed split in two."""
        return "retrying" if self.state == "failed" and self.next_retry_at is not None else self.state

    @property
    def is_live(self) -> bool:
        """Whether it has not ended for good."""
        return self.completed_at is None

    @property
    def failures(self) -> int:
        """How many attempts its history lists."""
        return len(json.loads(self.history)) if self.history else 0

    @property
    def value(self) -> Any:
        """What its body returned."""
        return json.loads(self.result)["value"] if self.result else None


@dataclass(frozen=True, slots=True)
class Change:
    """A row before and after; None where it was or is not there."""

    old: Row | None
    new: Row | None


class ChangeLog:
    """Reads what has changed since the last time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        old, new = (", ".join(f"{which}.{name}" for name in COLUMNS) for which in ("OLD", "NEW"))
        watched = ("state", "version", "attempts", "retry_count", "lost_count", "next_retry_at", "result", "history")
        watched += ("waits_for",)
        differs = " OR ".join(f"OLD.{name} IS NOT NEW.{name}" for name in watched)
        connection.executescript(
            f"""
            CREATE TEMP TABLE sim_changes (old TEXT, new TEXT);
            CREATE TEMP TRIGGER sim_insert AFTER INSERT ON main.tasks
                BEGIN INSERT INTO sim_changes VALUES (NULL, json_array({new})); END;
            CREATE TEMP TRIGGER sim_update AFTER UPDATE ON main.tasks WHEN {differs}
                BEGIN INSERT INTO sim_changes VALUES (json_array({old}), json_array({new})); END;
            CREATE TEMP TRIGGER sim_delete AFTER DELETE ON main.tasks
                BEGIN INSERT INTO sim_changes VALUES (json_array({old}), NULL); END;
            CREATE TABLE effects (task_id TEXT, execution INTEGER);
            CREATE TABLE step_effects (task_id TEXT, life INTEGER, key TEXT, run INTEGER);
            """
        )

    def take(self) -> list[Change]:
        """The changes, in order."""
        found = self._connection.execute("SELECT old, new FROM sim_changes ORDER BY rowid").fetchall()
        if found:
            self._connection.execute("DELETE FROM sim_changes")
        return [Change(_row(old), _row(new)) for old, new in found]

    def all(self) -> list[Row]:
        """Every task."""
        rows = self._connection.execute(f"SELECT {', '.join(COLUMNS)} FROM tasks ORDER BY seq").fetchall()
        return [Row(*row) for row in rows]


def _row(text: str | None) -> Row | None:
    return None if text is None else Row(*json.loads(text))
