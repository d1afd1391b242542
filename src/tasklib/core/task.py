"""The values that everything else uses: a task, its attempts, and a task to be stored.  No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal
from uuid import UUID

from tasklib.errors import TaskNotFound

OnConflict = Literal["return", "raise", "replace"]
DEFAULT_RETRIES: Final = 3
"""Retries by default; also shown for a row that has no number of its own yet."""
SUBMITTER_HEADER: Final = "tasklib.submitter"
"""The header of a row with a unique key that holds a digest of its sender over HTTP."""


class TaskState(StrEnum):
    """The state of a task; `failed` waits for its retry while `next_retry_at` is set, and is final otherwise.

    Examples:
        >>> TaskState("failed") is TaskState.FAILED, TaskState.FAILED == "failed"
        (True, True)
        >>> [state.value for state in TaskState]
        ['pending', 'running', 'completed', 'failed', 'cancelled', 'buried']
    """

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    BURIED = "buried"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One past attempt of a task, as kept on its row.

    Examples:
        >>> task_id = divide.submit(1, 0)
        >>> queue.process_batch()
        1
        >>> [attempt] = queue.wait(task_id).history
        >>> attempt.number, attempt.outcome, attempt.error
        (1, 'failed', 'ZeroDivisionError: division by zero')
    """

    number: int
    started_at: datetime | None
    ended_at: datetime | None
    worker_id: str | None
    outcome: str
    error: str | None = None
    release: str | None = None
    """The release of the code that its worker ran, if that is known."""
    traceback: str | None = None
    """The whole error, if it is kept."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line a task logged through its context.

    Examples:
        >>> @queue.task
        ... def greet(ctx: TaskContext = injected()) -> None:
        ...     ctx.log.warning("hello")
        >>> task_id = greet.submit()
        >>> queue.process_batch()
        1
        >>> [line] = queue.wait(task_id).log
        >>> line.level, line.text
        ('WARNING', 'hello')
    """

    attempt: int
    elapsed: float
    """Seconds since the attempt began."""
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Task:
    """A task as it stood in the database when it was read.

    Examples:
        >>> task_id = add.options(priority=5, tags={"team": "media"}).submit(1)
        >>> task = queue.get(task_id)
        >>> task.name, task.kwargs, task.priority, task.tags, task.state.value
        ('add', {'a': 1}, 5, {'team': 'media'}, 'pending')
    """

    id: UUID
    name: str
    state: TaskState
    scheduled_at: datetime
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    args: Any = field(default_factory=dict)
    kwargs: Any = field(default_factory=dict)
    result: Mapping[str, Any] | None = None
    error: str | None = None
    retry_count: int = 0
    max_retries: int = 3
    next_retry_at: datetime | None = None
    worker_id: str | None = None
    locked_until: datetime | None = None
    timeout_seconds: float | None = None
    priority: int = 0
    tags: Mapping[str, Any] = field(default_factory=dict)
    version: int = 0
    attempts: int = 0
    unique_key: str | None = None
    concurrency_key: str | None = None
    expires_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    progress: float | None = None
    progress_message: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    lost_count: int = 0
    history: tuple[Attempt, ...] = ()
    log: tuple[LogLine, ...] = ()
    seq: int = 0
    waits_for: str | None = None
    """What a suspended workflow waits for: `sleep`, `event shipped:42`, `code …`; None for any other task."""
    unreadable: str | None = None
    """Which parts of the row cannot be read and are empty here, and why; None for rows that tasklib wrote."""
    truncated: tuple[str, ...] = ()
    """Which fields a list shortens or leaves out; a task read by its id is complete."""

    def __repr__(self) -> str:
        """Every field, its secrets masked, because tasks are often printed and logged."""
        from tasklib.core.redaction import Redactor

        shown = Redactor().task(self)
        return f"Task({', '.join(f'{each.name}={getattr(shown, each.name)!r}' for each in fields(shown))})"

    @property
    def payload(self) -> Any:
        """The task's input under the name the HTTP interface uses; the same value as `kwargs`."""
        return self.kwargs

    @property
    def max_attempts(self) -> int:
        """How many attempts there may be in all: `max_retries + 1`."""
        return self.max_retries + 1

    @property
    def due_at(self) -> datetime | None:
        """When the task may run next, or None if it is not waiting."""
        if self.state is TaskState.PENDING:
            return self.next_retry_at or (self.scheduled_at if self.waits_for is None else None)
        return self.next_retry_at if self.state is TaskState.FAILED else None


def is_pending(task: Task) -> bool:
    """True while the task waits for its first start or was released.

    Examples:
        >>> is_pending(queue.get(add.submit(1)))
        True
    """
    return _required(task).state is TaskState.PENDING


def is_running(task: Task) -> bool:
    """True while a worker holds the task.

    Examples:
        >>> is_running(queue.get(add.submit(1)))
        False
    """
    return _required(task).state is TaskState.RUNNING


def is_completed(task: Task) -> bool:
    """True once the task's function returned.

    Examples:
        >>> task_id = add.submit(1)
        >>> queue.process_batch()
        1
        >>> is_completed(queue.get(task_id))
        True
    """
    return _required(task).state is TaskState.COMPLETED


def is_failed(task: Task) -> bool:
    """True while the last attempt failed, whether or not another one follows.

    Examples:
        >>> task_id = divide.submit(1, 0)
        >>> queue.process_batch()
        1
        >>> is_failed(queue.get(task_id))
        True
    """
    return _required(task).state is TaskState.FAILED


def is_terminal(task: Task) -> bool:
    """True once nothing will happen to the task by itself.

    Examples:
        >>> task_id = divide.submit(1, 0)
        >>> is_terminal(queue.get(task_id))
        False
        >>> queue.process_batch()
        1
        >>> is_terminal(queue.get(task_id))
        True
    """
    return _required(task).completed_at is not None


def has_result(task: Task) -> bool:
    """True if a result is stored (it may be `{"value": None}`).

    Examples:
        >>> task_id = add.submit(1)
        >>> has_result(queue.get(task_id))
        False
        >>> queue.process_batch()
        1
        >>> has_result(queue.get(task_id))
        True
    """
    return _required(task).result is not None


def has_error(task: Task) -> bool:
    """True if the last attempt left an error.

    Examples:
        >>> task_id = divide.submit(1, 0)
        >>> queue.process_batch()
        1
        >>> has_error(queue.get(task_id))
        True
    """
    return _required(task).error is not None


def _required(task: Task) -> Task:
    """The task itself; TaskNotFound says what was given instead."""
    given: Any = task
    if given is None or isinstance(given, UUID | str) or hasattr(given, "__await__"):
        raise TaskNotFound.instead_of_task(given)
    return task


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A task to be stored: validated, its input already plain JSON values."""

    id: UUID
    name: str
    kwargs: Any
    delay_seconds: float = 0.0
    run_at: datetime | None = None
    max_retries: int
    timeout_seconds: float | None = None
    priority: int = 0
    tags: Mapping[str, Any] = field(default_factory=dict)
    unique_key: str | None = None
    on_conflict: OnConflict = "return"
    concurrency_key: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    expires_at: datetime | None = None
    expires_in: float | None = None
    """Seconds from its submission, by the database's clock, where no moment is given."""
    is_id_given: bool = False
    """The caller has chosen the id, and may have submitted it before."""

    def __repr__(self) -> str:
        return f"<NewTask {self.name!r} {self.id}>"


POSITION_DIGITS: Final = 4
"""The hexadecimal digits at the end of a UUID by which the ids of a batch differ."""


def first_of_many(task_id: UUID) -> UUID:
    """The id made the first of up to 65,536 that count up from it; still a UUIDv7."""
    return UUID(int=task_id.int >> 16 << 16)


@dataclass(frozen=True, slots=True)
class TaskBatch:
    """Tasks to be stored that differ in nothing but their input; their ids count up from that of the first."""

    like: NewTask
    """What they have in common, and the first id; its input is not used."""
    inputs: str
    """The input of each, as one JSON array."""
    count: int
