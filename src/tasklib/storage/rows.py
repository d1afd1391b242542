"""Rows of either database turned into values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tasklib.codec import loads
from tasklib.storage.statement import Row
from tasklib.task import Attempt, LogLine, Task, TaskState, WorkerInfo


def moment(value: datetime | str | float | None) -> datetime | None:
    """An aware UTC datetime from what either database gives for a time."""
    if value is None:
        return None
    if isinstance(value, int | float):  # seconds since 1970, which PostgreSQL writes faster than a date
        return datetime.fromtimestamp(value, UTC)
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
        scheduled_at=required_moment(row["scheduled_at"]),
        created_at=required_moment(row["created_at"]),
        updated_at=required_moment(row["updated_at"]),
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
        "claim",
        "created_at",
        "fields",
        "id",
        "kwargs",
        "lost_count",
        "max_retries",
        "name",
        "rare",
        "retry_count",
        "seq",
        "timeout_seconds",
        "version",
    )

    def __init__(self, fields: Sequence[Any], claim: Sequence[Any]) -> None:
        """`claim` is what all tasks of one claim have in common: its moment, and how long its lease is."""
        self.fields = fields
        self.claim = claim
        (
            self.id,
            self.seq,
            self.name,
            self.kwargs,
            self.version,
            self.attempts,
            self.max_retries,
            self.created_at,
            self.rare,  # What most tasks have none of travels apart.
        ) = fields
        self.timeout_seconds: float | None = None
        self.retry_count = self.lost_count = 0
        if self.rare is not None:
            (_, self.retry_count, self.lost_count, _, _, self.timeout_seconds, *_) = self.rare

    @property
    def waited(self) -> float:
        """Seconds from when its first attempt was due until it was claimed."""
        due, claimed_at = self.created_at, self.claim[0]
        if self.rare is not None:
            due = max(due, self.rare[0])
        if isinstance(due, str):
            return (datetime.fromisoformat(claimed_at) - datetime.fromisoformat(due)).total_seconds()
        return float(claimed_at - due)

    @property
    def headers(self) -> Any:
        """What the submitter sent along."""
        return (self.rare and self.rare[6]) or {}

    def task(self, worker_id: str) -> Task:
        """The whole task as the claim left it."""
        ordinary: Sequence[Any] = (self.created_at, 0, 0, 0, {}, None, None, None, None, None)
        scheduled_at, _, _, priority, tags, _, _, unique_key, concurrency_key, expires_at = self.rare or ordinary
        started_at = required_moment(self.claim[0])
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
            priority=priority,
            tags=tags or {},
            headers=self.headers,
            scheduled_at=required_moment(scheduled_at),
            created_at=required_moment(self.created_at),
            started_at=started_at,
            updated_at=started_at,
            locked_until=started_at + timedelta(seconds=self.claim[1]),
            lost_count=self.lost_count,
            unique_key=unique_key,
            concurrency_key=concurrency_key,
            expires_at=moment(expires_at),
            worker_id=worker_id,
        )


def worker_from_row(row: Row) -> WorkerInfo:
    """The worker instance of a row."""
    info = _json(row["info"])
    return WorkerInfo(
        instance=uuid(row["instance"]),
        worker_id=row["worker_id"],
        host=row["host"],
        pid=row["pid"],
        started_at=required_moment(row["started_at"]),
        heartbeat_at=required_moment(row["heartbeat_at"]),
        names=tuple(_json(row["names"])),
        concurrency=row["concurrency"],
        idle=bool(row["idle"]),
        alive=row["silent_for"] <= row["timeout_seconds"],
        running=row["running"],
        memory_bytes=info.get("memory_bytes"),
        stuck_threads=info.get("stuck_threads", 0),
        retention=info.get("retention", ""),
    )


def number(value: float | None) -> float | None:
    """A number of seconds, whole where it is whole: the column is a float, and 30 should not read 30.0."""
    return int(value) if value is not None and value == int(value) else value


def required_moment(value: datetime | str | float) -> datetime:
    """The same for a time that is always there."""
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
