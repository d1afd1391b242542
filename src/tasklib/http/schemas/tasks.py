"""What the service answers about tasks: the names and values of the specification's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, Self
from uuid import UUID

from pydantic import Field

import tasklib.core.task as domain
from tasklib.core.explain import Explanation
from tasklib.http.schemas.bounds import busiest
from tasklib.http.schemas.fields import Answer
from tasklib.service.creation import StoredTask
from tasklib.service.service import as_data

Status = Literal["pending", "processing", "completed", "failed", "cancelled", "buried"]
STATES = {"processing": "running"}
"""Where a status of HTTP is called otherwise inside."""


def status_of(state: str) -> Any:
    """What HTTP calls a state."""
    return "processing" if state == "running" else str(state)


class Created(Answer):
    """A task that was accepted."""

    id: UUID
    type: str
    status: Status
    created_at: datetime

    @classmethod
    def of(cls, task: domain.Task | StoredTask) -> Self:
        """The answer about one task."""
        return cls(id=task.id, type=task.name, status=status_of(task.state), created_at=task.created_at)


class CreatedMany(Answer):
    """Tasks accepted together, in the order in which they were sent."""

    tasks: list[Created]


class Task(Answer):
    """A task."""

    id: UUID
    type: str
    payload: Any = Field(description="The task's input.")
    status: Status
    attempts: int
    max_attempts: int
    last_attempt_at: datetime | None
    next_retry_at: datetime | None
    result: Any = Field(description="What the task returned; null while there is nothing.")
    error: str | None
    run_after: datetime | None = Field(description="Null if the task was not delayed.")
    created_at: datetime
    updated_at: datetime
    completed_at: datetime | None = Field(description="Set when the task is terminal.")
    priority: int
    tags: dict[str, Any]
    timeout_seconds: float | None
    unique_key: str | None
    concurrency_key: str | None
    expires_at: datetime | None
    cancel_requested_at: datetime | None
    progress: float | None
    progress_message: str | None
    worker_id: str | None
    version: int = Field(description="The fencing token: grows with every claim.")
    truncated: list[str] = Field(
        description="The fields that a list shortens or leaves out; a task read by its id is complete."
    )
    unreadable: str | None = Field(description="Which parts of the stored row cannot be read, and why; usually null.")

    @classmethod
    def of(cls, task: domain.Task) -> Self:
        """The task as HTTP shows it."""
        return cls(**_columns(task))


class Attempt(Answer):
    """One past attempt."""

    number: int
    started_at: datetime | None
    ended_at: datetime | None
    worker_id: str | None
    outcome: str
    error: str | None


class LogLine(Answer):
    """One line that the task logged."""

    attempt: int
    elapsed: float = Field(description="Seconds since the attempt began.")
    level: str
    text: str


class TaskDetail(Task):
    """A task with its past attempts and log."""

    headers: dict[str, Any]
    lost_count: int = Field(description="How many workers were lost while they ran it.")
    history: list[Attempt]
    log: list[LogLine]

    @classmethod
    def of(cls, task: domain.Task) -> Self:
        """The task as HTTP shows it, with its past."""
        return cls(
            **_columns(task),
            headers=dict(task.headers),
            lost_count=task.lost_count,
            history=[Attempt(**_fields(each)) for each in task.history],
            log=[LogLine(**_fields(each)) for each in task.log],
        )


class TaskPage(Answer):
    """Some tasks, newest first."""

    tasks: list[Task]
    total: int | None = Field(
        description="How many match in all; null if not requested, or not countable without reading every row."
    )
    limit: int
    offset: int
    next_cursor: str | None = Field(
        description="Give it as `cursor` for the next page; null on the last one. A short page may have one too."
    )


class Retried(Answer):
    """A task that was retried."""

    id: UUID
    status: Status
    attempts: int
    next_retry_at: datetime | None


class Cancelled(Answer):
    """A task that was cancelled, or will be when its worker has stopped it."""

    id: UUID
    status: Status
    cancel_requested_at: datetime | None


class Prioritized(Answer):
    """A task with its new priority."""

    id: UUID
    status: Status
    priority: int


class Stats(Answer):
    """Counts of tasks by status; `delayed` ones are also pending, `retrying` ones also failed."""

    pending: int
    processing: int
    completed: int
    failed: int
    cancelled: int
    buried: int
    delayed: int
    retrying: int
    by_type: dict[str, dict[str, int]] = Field(description="The busiest types, up to 500; the others are only counted.")
    types_left_out: int = Field(0, description="How many types are not in `byType`; see GET /api/types.")
    max_age_seconds: int = Field(description="How old the counts may be: 0 in a small queue, 1 or 5 in a large one.")

    @classmethod
    def of(cls, stats: domain.QueueStats, max_age_seconds: int) -> Self:
        """The numbers under their names in HTTP."""
        names = busiest(stats.by_name, lambda name: stats.by_name[name])
        by_type = {name: _statuses(stats.by_name[name]) for name in names}
        return cls(
            pending=stats.pending,
            processing=stats.running,
            completed=stats.completed,
            failed=stats.failed,
            cancelled=stats.cancelled,
            buried=stats.buried,
            delayed=stats.delayed,
            retrying=stats.retrying,
            by_type=by_type,
            types_left_out=len(stats.by_name) - len(by_type),
            max_age_seconds=max_age_seconds,
        )


class Deleted(Answer):
    """How many tasks were removed."""

    deleted: int


class Reason(Answer):
    """One reason why a task is not running, with its evidence and remedy."""

    code: str
    text: str
    evidence: dict[str, Any]
    remedy: str | None


class Explained(Answer):
    """Why a task is not running, the most decisive reason first."""

    id: UUID
    status: Status
    reasons: list[Reason]

    @classmethod
    def of(cls, found: Explanation) -> Self:
        """The explanation as HTTP shows it."""
        reasons = [
            Reason(code=each.code, text=each.text, evidence=as_data(dict(each.evidence)), remedy=each.remedy)
            for each in found.reasons
        ]
        return cls(id=found.task.id, status=status_of(found.task.state), reasons=reasons)


def _columns(task: domain.Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "type": task.name,
        "payload": task.payload,
        "status": status_of(task.state),
        "attempts": task.attempts,
        "max_attempts": task.max_attempts,
        "last_attempt_at": task.started_at,
        "next_retry_at": task.next_retry_at,
        "result": None if task.result is None else task.result.get("value"),
        "error": task.error,
        "run_after": task.scheduled_at if task.scheduled_at > task.created_at else None,
        **{name: getattr(task, name) for name in _SAME},
        "tags": dict(task.tags),
        "truncated": [_HTTP_NAMES.get(name, name) for name in task.truncated if name not in _NOT_LISTED],
    }


_HTTP_NAMES = {
    "kwargs": "payload",
    "progress_message": "progressMessage",
    "unique_key": "uniqueKey",
    "concurrency_key": "concurrencyKey",
    "worker_id": "workerId",
}
_NOT_LISTED = frozenset({"args", "headers", "history", "log"})


_SAME = (
    *("created_at", "updated_at", "completed_at", "priority", "timeout_seconds", "unique_key", "concurrency_key"),
    *("expires_at", "cancel_requested_at", "progress", "progress_message", "worker_id", "version", "unreadable"),
)


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _statuses(counts: Mapping[str, int]) -> dict[str, int]:
    return {status_of(state): count for state, count in counts.items()}
