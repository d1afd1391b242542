"""Every change of what workflows record, as the database itself sees it: steps, events, groups and budgets."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar


class Step(NamedTuple):
    """What is looked at of a step."""

    task_id: str
    key: str
    kind: str
    state: str
    version: int
    value: str | None
    error: str | None
    until: str | None


class Event(NamedTuple):
    """What is looked at of a fact or a message."""

    id: int
    name: str
    task_id: str | None
    payload: str
    taken_by: str | None
    created_at: str


class Group(NamedTuple):
    """What is looked at of a group of children, or of what is before a task."""

    id: str
    task_id: str
    key: str
    kind: str
    total: int
    sealed: int
    ended: int
    failed: int
    cancelled: int
    max_failures: int | None
    fired_at: str | None
    run_if: str | None


class Budget(NamedTuple):
    """What is looked at of a budget."""

    name: str
    rate: float
    burst: float
    tokens: float


Record = TypeVar("Record", Step, Event, Group, Budget)
KINDS: dict[str, type[Any]] = {
    "tasklib_steps": Step,
    "tasklib_events": Event,
    "tasklib_groups": Group,
    "tasklib_budgets": Budget,
}


@dataclass(frozen=True, slots=True)
class Noted(Generic[Record]):
    """A record before and after; None where it was or is not there."""

    old: Record | None
    new: Record | None


class RecordLog:
    """Reads what has changed since the last time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute("CREATE TEMP TABLE sim_records (kind TEXT, old TEXT, new TEXT)")
        for table, kind in KINDS.items():
            old, new = (", ".join(f"{which}.{name}" for name in kind._fields) for which in ("OLD", "NEW"))
            connection.executescript(
                f"""
                CREATE TEMP TRIGGER sim_insert_{table} AFTER INSERT ON main.{table}
                    BEGIN INSERT INTO sim_records VALUES ('{table}', NULL, json_array({new})); END;
                CREATE TEMP TRIGGER sim_update_{table} AFTER UPDATE ON main.{table}
                    BEGIN INSERT INTO sim_records VALUES ('{table}', json_array({old}), json_array({new})); END;
                CREATE TEMP TRIGGER sim_delete_{table} AFTER DELETE ON main.{table}
                    BEGIN INSERT INTO sim_records VALUES ('{table}', json_array({old}), NULL); END;
                """
            )

    def take(self) -> list[tuple[type[Any], Noted[Any]]]:
        """The changes, in order."""
        found = self._connection.execute("SELECT kind, old, new FROM sim_records ORDER BY rowid").fetchall()
        if not found:
            return []
        self._connection.execute("DELETE FROM sim_records")
        return [(KINDS[kind], Noted(_record(KINDS[kind], old), _record(KINDS[kind], new))) for kind, old, new in found]


def _record(kind: type[Any], text: str | None) -> Any:
    return None if text is None else kind(*json.loads(text))
