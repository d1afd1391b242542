"""The life of a task as one table: which event may happen in which phase, and where it leads.  Pure.

A phase is a stored state, with `failed` split in two: RETRYING (next_retry_at is set) and FAILED (completed_at is set).
The guarded statements in `storage/` enforce this table; `docs/lifecycle.md` draws it; a test compares all three.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from tasklib.task import Task, TaskState


class Phase(StrEnum):
    """A state as the lifecycle sees it."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    RETRYING = "retrying"
    FAILED = "failed"
    CANCELLED = "cancelled"
    BURIED = "buried"


class Event(StrEnum):
    """What can happen to a task."""

    CLAIM = "claim"
    COMPLETE = "complete"
    RETRY_LATER = "retry_later"
    GIVE_UP = "give_up"
    SNOOZE = "snooze"
    RELEASE = "release"
    CANCEL = "cancel"
    EXPIRE = "expire"
    LOSE = "lose"
    BURY = "bury"
    RETRY = "retry"
    REPLACE = "replace"
    DELETE = "delete"


TRANSITIONS: Final[Mapping[tuple[Phase, Event], Phase | None]] = MappingProxyType(
    {
        (Phase.PENDING, Event.CLAIM): Phase.RUNNING,
        (Phase.RETRYING, Event.CLAIM): Phase.RUNNING,
        (Phase.RUNNING, Event.COMPLETE): Phase.COMPLETED,
        (Phase.RUNNING, Event.RETRY_LATER): Phase.RETRYING,
        (Phase.RUNNING, Event.GIVE_UP): Phase.FAILED,
        (Phase.RUNNING, Event.SNOOZE): Phase.PENDING,
        (Phase.RUNNING, Event.RELEASE): Phase.PENDING,
        (Phase.RUNNING, Event.LOSE): Phase.PENDING,
        (Phase.RUNNING, Event.BURY): Phase.BURIED,
        (Phase.PENDING, Event.CANCEL): Phase.CANCELLED,
        (Phase.RETRYING, Event.CANCEL): Phase.CANCELLED,
        (Phase.RUNNING, Event.CANCEL): Phase.CANCELLED,
        (Phase.PENDING, Event.EXPIRE): Phase.CANCELLED,
        (Phase.RETRYING, Event.EXPIRE): Phase.CANCELLED,
        (Phase.RETRYING, Event.RETRY): Phase.PENDING,
        (Phase.FAILED, Event.RETRY): Phase.PENDING,
        (Phase.CANCELLED, Event.RETRY): Phase.PENDING,
        (Phase.BURIED, Event.RETRY): Phase.PENDING,
        (Phase.COMPLETED, Event.RETRY): Phase.PENDING,
        (Phase.PENDING, Event.REPLACE): Phase.PENDING,
        (Phase.RETRYING, Event.REPLACE): Phase.PENDING,
        (Phase.COMPLETED, Event.DELETE): None,
        (Phase.FAILED, Event.DELETE): None,
        (Phase.CANCELLED, Event.DELETE): None,
        (Phase.BURIED, Event.DELETE): None,
    }
)
"""The legal transitions; None is "the row is gone".  Every pair that is not here is refused."""

WAITING: Final = frozenset({Phase.PENDING, Phase.RETRYING})
LIVE: Final = WAITING | {Phase.RUNNING}
TERMINAL: Final = frozenset(Phase) - LIVE


def phase_of(task: Task) -> Phase:
    """The phase of a task as read."""
    if task.state is TaskState.FAILED:
        return Phase.RETRYING if task.next_retry_at is not None else Phase.FAILED
    return Phase(task.state.value)


def allowed(phase: Phase, event: Event) -> bool:
    """Whether the event may happen in the phase."""
    return (phase, event) in TRANSITIONS


def phases_allowing(event: Event) -> str:
    """The phases in which the event may happen, for an error message."""
    return ", ".join(phase.value for phase in Phase if allowed(phase, event))
