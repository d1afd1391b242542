"""Answers about tasks: the names and values of the specification's JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import BeforeValidator, Field
from pydantic.alias_generators import to_camel

from tasklib.core.insights.explain import Explanation
from tasklib.core.queue_info import QueueStats
from tasklib.core.texts.fingerprint import fingerprint, group_id
from tasklib.http.schemas.bounds import busiest
from tasklib.http.schemas.fields import Answer, Status, TypeName, status_of
from tasklib.service.service import as_data

_COUNTED = ("pending", "running", "completed", "failed", "cancelled", "buried", "delayed", "waiting", "retrying")
_NOT_LISTED = frozenset({"args", "headers", "history", "log"})


def _bare(result: Any) -> Any:
    """What the task returned, from the stored `{"value": …}`."""
    return None if result is None else result.get("value")


def _http_names(fields: tuple[str, ...]) -> list[str]:
    return ["payload" if name == "kwargs" else to_camel(name) for name in fields if name not in _NOT_LISTED]


class Created(Answer):
    """A task that was accepted."""

    id: UUID
    type: TypeName
    status: Status
    created_at: datetime


class CreatedMany(Answer):
    """Tasks accepted together, in the order in which they were sent."""

    tasks: list[Created]


class Task(Answer):
    """A task."""

    id: UUID
    type: TypeName
    payload: Any = Field(description="The task's input.")
    status: Status
    attempts: int
    max_attempts: int
    last_attempt_at: datetime | None = Field(validation_alias="started_at")
    next_retry_at: datetime | None
    result: Annotated[Any, BeforeValidator(_bare)] = Field(
        description="What the task returned; null while there is nothing."
    )
    error: str | None
    run_after: datetime | None = Field(validation_alias="scheduled_at", description="Null if the task was not delayed.")
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
    waits_for: str | None = Field(description="What a suspended workflow waits for; null for any other task.")
    version: int = Field(description="The fencing token: grows with every claim.")
    truncated: Annotated[list[str], BeforeValidator(_http_names)] = Field(
        description="The fields that a list shortens or leaves out; a task read by its id is complete."
    )
    unreadable: str | None = Field(description="Which parts of the stored row cannot be read, and why; usually null.")

    @classmethod
    def of(cls, value: object) -> Self:
        """The task as HTTP shows it."""
        shown = super().of(value)
        was_delayed = shown.run_after is not None and shown.run_after > shown.created_at
        return shown if was_delayed else shown.model_copy(update={"run_after": None})


class Attempt(Answer):
    """One past attempt."""

    number: int
    started_at: datetime | None
    ended_at: datetime | None
    worker_id: str | None
    outcome: str
    error: str | None
    release: str | None = Field(description="The release of the code that its worker ran, if that is known.")
    traceback: str | None = Field(description="The whole error; null where none is kept.")


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
    error_group: str | None = Field(None, description="Its group in `/api/errors`, if it failed for good.")

    @classmethod
    def of(cls, value: object) -> Self:
        """The task as HTTP shows it."""
        shown = super().of(value)
        if shown.error is None or shown.completed_at is None or shown.status not in ("failed", "buried"):
            return shown
        return shown.model_copy(update={"error_group": group_id(shown.type, fingerprint(shown.error))})


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
    looked: float | None = Field(
        description="Where a search stopped before it had a whole page: which part of the queue, from the newest task "
        "on, it has looked through (0 to 1). Null if it was complete."
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
    """Counts of tasks by status; `delayed` and `waiting` ones are also pending, `retrying` ones also failed."""

    pending: int
    processing: int
    completed: int
    failed: int
    cancelled: int
    buried: int
    delayed: int
    waiting: int = Field(description="Workflows that sleep, or wait for an event, a person or other tasks.")
    retrying: int
    by_type: dict[str, dict[str, int]] = Field(
        description="The same counts of each type, of the busiest 500; the types beyond are only counted."
    )
    types_left_out: int = Field(0, description="How many types are not in `byType`; see GET /api/types.")
    max_age_seconds: int = Field(description="How old the counts may be: 0 in a small queue, 1 or 5 in a large one.")

    @classmethod
    def counted(cls, stats: QueueStats, max_age_seconds: int) -> Self:
        """The numbers under their names in HTTP."""
        names = busiest(stats.by_name, lambda name: stats.by_name[name])
        by_type = {name: {status_of(state): count for state, count in stats.by_name[name].items()} for name in names}
        return cls(
            **{status_of(state): getattr(stats, state) for state in _COUNTED},
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
    evidence: Annotated[dict[str, Any], BeforeValidator(as_data)]
    remedy: str | None


class Explained(Answer):
    """Why a task is not running, the most decisive reason first."""

    id: UUID
    status: Status
    reasons: list[Reason]

    @classmethod
    def explaining(cls, found: Explanation) -> Self:
        """The explanation as HTTP shows it."""
        return cls(
            id=found.task.id, status=status_of(found.task.state), reasons=[Reason.of(each) for each in found.reasons]
        )
