"""Rows of either database turned into values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from tasklib.codec import loads
from tasklib.storage.statement import Row
from tasklib.task import Attempt, LogLine, Task, TaskState, WorkerInfo


def moment(value: datetime | str | None) -> datetime | None:
    """An aware UTC datetime from what either database gives for a time."""
    if value is None:
        return None
    parsed = datetime.fromisoformat(value) if isinstance(value, str) else value
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)


def moment_text(value: datetime) -> str:
    """A time as the UTC text that both databases read: in JSON batches, and everywhere on SQLite."""
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


def uuid(value: UUID | str) -> UUID:
    """A UUID from what either database gives for one."""
    return value if isinstance(value, UUID) else UUID(value)


def task_from_row(row: Row) -> Task:
    """The task of a row that holds all columns."""
    task_id = uuid(row["id"])
    return Task(
        id=task_id,
        name=row["name"],
        state=TaskState(row["state"]),
        scheduled_at=_required(row["scheduled_at"]),
        created_at=_required(row["created_at"]),
        updated_at=_required(row["updated_at"]),
        started_at=moment(row["started_at"]),
        completed_at=moment(row["completed_at"]),
        args=_json(row["args"]),
        kwargs=_json(row["kwargs"]),
        result=_json(row["result"]),
        error=row["error"],
        retry_count=row["retry_count"],
        max_retries=row["max_retries"],
        next_retry_at=moment(row["next_retry_at"]),
        worker_id=row["worker_id"],
        locked_until=moment(row["locked_until"]),
        timeout_seconds=number(row["timeout_seconds"]),
        priority=row["priority"],
        tags=_json(row["tags"]) or {},
        version=row["version"],
        attempts=row["attempts"],
        unique_key=row["unique_key"],
        concurrency_key=row["concurrency_key"],
        expires_at=moment(row["expires_at"]),
        cancel_requested_at=moment(row["cancel_requested_at"]),
        progress=row["progress"],
        progress_message=row["progress_message"],
        headers=_json(row["headers"]) or {},
        lost_count=row["lost_count"],
        history=_history(row),
        log=tuple(LogLine(*line) for line in _json(row["log"]) or ()),
        seq=row["seq"],
    )


class ClaimedTask:
    """A task this process has just claimed; cheap to make, and a full Task on demand."""

    __slots__ = (
        "attempts",
        "fields",
        "id",
        "kwargs",
        "lost_count",
        "max_retries",
        "name",
        "retry_count",
        "seq",
        "timeout_seconds",
        "version",
    )

    def __init__(self, fields: Sequence[Any]) -> None:
        self.fields = fields
        (self.id, self.seq, self.name, self.kwargs, self.version, self.attempts) = fields[:6]
        (self.retry_count, self.max_retries, self.timeout_seconds) = fields[6:9]
        self.lost_count: int = fields[16]

    @property
    def waited(self) -> float:
        """Seconds from when its first attempt was due until it was claimed."""
        fields = self.fields
        due = max(fields[12], fields[13])
        return (datetime.fromisoformat(fields[14]) - datetime.fromisoformat(due)).total_seconds()

    @property
    def headers(self) -> Any:
        """What the submitter sent along."""
        return self.fields[11] or {}

    def task(self, worker_id: str) -> Task:
        """The whole task as the claim left it."""
        fields = self.fields
        started_at = _required(fields[14])
        return Task(
            id=UUID(self.id),
            seq=self.seq,
            name=self.name,
            state=TaskState.RUNNING,
            kwargs=self.kwargs,
            version=self.version,
            attempts=self.attempts,
            retry_count=self.retry_count,
            max_retries=self.max_retries,
            timeout_seconds=number(self.timeout_seconds),
            priority=fields[9],
            tags=fields[10] or {},
            headers=self.headers,
            scheduled_at=_required(fields[12]),
            created_at=_required(fields[13]),
            started_at=started_at,
            updated_at=started_at,
            locked_until=moment(fields[15]),
            lost_count=self.lost_count,
            unique_key=fields[17],
            concurrency_key=fields[18],
            expires_at=moment(fields[19]),
            worker_id=worker_id,
        )


def worker_from_row(row: Row) -> WorkerInfo:
    """The worker instance of a row."""
    return WorkerInfo(
        instance=uuid(row["instance"]),
        worker_id=row["worker_id"],
        host=row["host"],
        pid=row["pid"],
        started_at=_required(row["started_at"]),
        heartbeat_at=_required(row["heartbeat_at"]),
        names=tuple(_json(row["names"])),
        concurrency=row["concurrency"],
        idle=bool(row["idle"]),
        alive=row["silent_for"] <= row["timeout_seconds"],
        running=row["running"],
    )


def number(value: float | None) -> float | None:
    """A number of seconds, whole where it is whole: the column is a float, and 30 should not read 30.0."""
    return int(value) if value is not None and value == int(value) else value


def _required(value: datetime | str) -> datetime:
    parsed = moment(value)
    assert parsed is not None
    return parsed


def _json(text: str | None) -> Any:
    return None if text is None else loads(text)


def _history(row: Row) -> tuple[Attempt, ...]:
    """The stored past attempts, and the successful last one, which lives in the row's own columns."""
    past = [
        Attempt(number, moment(started), moment(ended), worker, outcome, error)
        for number, started, ended, worker, outcome, error in _json(row["history"]) or ()
    ]
    if row["state"] == TaskState.COMPLETED:
        started, ended = moment(row["started_at"]), moment(row["completed_at"])
        past.append(Attempt(row["attempts"], started, ended, row["finished_by"], "completed"))
    return tuple(past)
