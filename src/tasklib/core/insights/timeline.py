"""What has happened to a task, in order: its attempts, and what it has recorded.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from tasklib.core.task import Task, TaskState

_PLACE: Final = {"submitted": 0, "ended": 2}
"""The kinds that come first and last, whatever clocks say: a worker's clock differs from the database's."""


class StepLike(Protocol):
    """What is needed of a recorded step."""

    @property
    def key(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def error(self) -> Any: ...
    @property
    def question(self) -> str | None: ...
    @property
    def tries(self) -> int: ...
    @property
    def note(self) -> str | None: ...
    @property
    def started_at(self) -> datetime | None: ...
    @property
    def ended_at(self) -> datetime | None: ...
    @property
    def until(self) -> datetime | None: ...
    @property
    def undo(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One thing that happened to a task, or goes on."""

    kind: str
    """`submitted`, `attempt`, `ended`, or the kind of a recorded step."""
    at: datetime
    ended_at: datetime | None
    """None while it goes on."""
    state: str
    """Of a step `open`, `done` or `failed`; of an attempt its outcome, or `running`; of the end the task's state."""
    key: str | None = None
    """The step's key."""
    number: int | None = None
    """Which attempt it is, or which step."""
    text: str | None = None
    """The error, or the question."""
    note: str | None = None
    """What was odd about a step, or which event or person filled it."""
    worker_id: str | None = None
    until: datetime | None = None
    """When a wait gives up, or a sleep ends."""
    tries: int | None = None
    undo: str | None = None
    """The name of the task that undoes the step if the workflow ends without success."""


def timeline(task: Task, steps: Iterable[StepLike]) -> list[TimelineEntry]:
    """Everything that is known of a task, the earliest first; an attempt before its steps."""
    entries = [*_life(task), *(_step(step, task.created_at) for step in steps)]
    return sorted(entries, key=_place)


def _place(entry: TimelineEntry) -> tuple[int, datetime, bool, int]:
    return _PLACE.get(entry.kind, 1), entry.at, entry.kind != "attempt", entry.number or 0


def _life(task: Task) -> Iterator[TimelineEntry]:
    yield TimelineEntry("submitted", task.created_at, task.created_at, "pending")
    for attempt in task.history:
        at = attempt.started_at or attempt.ended_at or task.created_at
        yield TimelineEntry(
            *("attempt", at, attempt.ended_at, attempt.outcome),
            number=attempt.number,
            text=attempt.error,
            worker_id=attempt.worker_id,
        )
    if task.state is TaskState.RUNNING:
        at = task.started_at or task.updated_at
        yield TimelineEntry("attempt", at, None, "running", number=task.attempts, worker_id=task.worker_id)
    if task.completed_at is not None:
        yield TimelineEntry("ended", task.completed_at, task.completed_at, str(task.state), text=task.error)


def _step(step: StepLike, otherwise: datetime) -> TimelineEntry:
    is_open = step.state == "open"
    error = step.error if isinstance(step.error, dict) else None
    said = None if error is None else ": ".join(str(error[name]) for name in ("type", "message") if error.get(name))
    return TimelineEntry(
        kind=step.kind,
        at=step.started_at or step.ended_at or otherwise,
        ended_at=None if is_open else step.ended_at or step.until,
        state=step.state,
        key=step.key,
        number=step.number,
        text=said or step.question,
        note=step.note,
        until=step.until,
        tries=step.tries or None,
        undo=step.undo,
    )
