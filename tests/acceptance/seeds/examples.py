"""The example task of seed 001, and how its records are compared."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import tasklib
from tasklib import Task
from tests.acceptance.seeds.support import SEED_COLUMNS


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
