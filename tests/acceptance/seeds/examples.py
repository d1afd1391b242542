"""The example task of seed 001, how its records are compared, and what its queries must find."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import tasklib
from tasklib import ManualClock, Task, TaskQueue
from tests.acceptance.seeds.statements import Printed
from tests.acceptance.seeds.support import SEED_COLUMNS, Shell


class Some:
    """Equal to whatever passes the check: a value whose kind is known, but not its exact content."""

    def __init__(self, check: Callable[[Any], bool]) -> None:
        self._check = check

    def __eq__(self, other: object) -> bool:
        return self._check(other)

    def __hash__(self) -> int:
        return 0


AN_ID = Some(lambda value: isinstance(value, UUID))


A_TIME = Some(lambda value: isinstance(value, datetime) and value.tzinfo is not None)


def at(clock_time: str) -> datetime:
    """A moment of the day on which the seed's examples happen."""
    return datetime.fromisoformat(f"2025-10-25T{clock_time}").replace(tzinfo=UTC)


def record(task: Task | None) -> dict[str, Any]:
    """The fields the seed prints, in its order."""
    assert task is not None
    return {column: getattr(task, column) for column in SEED_COLUMNS}


def define_send_email(action: Callable[[], Any] = lambda: True) -> Any:
    """The task of all examples; what it does differs."""

    @tasklib.task(name="send_email", timeout_seconds=30)
    def send_email(to: str, subject: str, body: str = "") -> Any:
        return action()

    return send_email


def if_running(task_id: UUID) -> Task | None:
    """The task while it runs."""
    task = tasklib.get_task(task_id)
    return task if task is not None and tasklib.is_running(task) else None


def check_pickup(printed: Printed, queue: TaskQueue, outside: Shell) -> None:
    """The printed query finds the due task of the highest priority."""
    queue.clock = ManualClock(datetime.now(UTC) - timedelta(minutes=1))
    queue.enqueue("ordinary")
    urgent = queue.enqueue("urgent", priority=5)
    queue.enqueue("later", priority=9, delay_seconds=3600)

    (row,) = outside.choose(postgres=printed.postgres, sqlite=printed.sqlite)

    columns = [name for name, *_ in outside.choose(postgres=_NAMES_POSTGRES, sqlite=_NAMES_SQLITE)]
    assert str(row[columns.index("id")]) == str(urgent)


_NAMES_POSTGRES = (
    "SELECT column_name FROM information_schema.columns"
    " WHERE table_name = 'tasks' AND table_schema = current_schema() ORDER BY ordinal_position"
)
_NAMES_SQLITE = "SELECT name FROM pragma_table_xinfo('tasks')"
