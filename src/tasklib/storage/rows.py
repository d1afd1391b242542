"""Rows of either database turned into values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from tasklib.core.codec import dumps, loads, loads_start, number
from tasklib.core.queue_info import EndedWorker, WorkerInfo
from tasklib.core.task import DEFAULT_RETRIES, Attempt, LogLine, Task, TaskState
from tasklib.storage.statement import Row, UndecodedText

NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Shown where a time that is always there cannot be read."""
UNREADABLE: Final = "UnreadableTask: the stored row cannot be read: {}; correct it by hand, or submit the task again"
"""The error of a task that failed because its row cannot be read, and why it cannot."""


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
    if value.tzinfo is not UTC:
        value = value.astimezone(UTC)
    return value.isoformat(" ", "microseconds")[:26]  # without "+00:00"


def uuid(value: UUID | str) -> UUID:
    """A UUID from what either database gives for one."""
    return value if isinstance(value, UUID) else UUID(value)


def task_from_row(row: Row) -> Task:
    """The task of a row that holds all columns; what cannot be read of it is left empty and named in `unreadable`."""
    reader = RowReader(row)
    read = reader.read
    reader.problems += [f"{column} cannot be read (it is not UTF-8)" for column in _KEYS if is_undecoded(row[column])]
    return Task(
        id=uuid(row["id"]),
        name=row["name"],
        state=TaskState(row["state"]),
        scheduled_at=read("scheduled_at", required_moment, NO_TIME),
        created_at=read("created_at", required_moment, NO_TIME),
        updated_at=read("updated_at", required_moment, NO_TIME),
        started_at=read("started_at", moment),
        completed_at=read("completed_at", moment),
        args=read("args", json_value),
        kwargs=read("kwargs", json_value),
        result=read("result", _object),
        error=row["error"],
        retry_count=row["retry_count"],
        max_retries=DEFAULT_RETRIES if row["max_retries"] < 0 else row["max_retries"],
        next_retry_at=read("next_retry_at", moment),
        worker_id=row["worker_id"],
        locked_until=read("locked_until", moment),
        timeout_seconds=read("timeout_seconds", number),
        priority=row["priority"],
        tags=read("tags", _object) or {},
        version=row["version"],
        attempts=row["attempts"],
        unique_key=row["unique_key"],
        concurrency_key=row["concurrency_key"],
        expires_at=read("expires_at", moment),
        cancel_requested_at=read("cancel_requested_at", moment),
        progress=row["progress"],
        progress_message=row["progress_message"],
        headers=read("headers", _object) or {},
        lost_count=row["lost_count"],
        history=read("history", lambda _: _history(row), ()),
        log=read("log", _lines, ()),
        seq=row["seq"],
        waits_for=row["waits_for"],
        unreadable="; ".join(reader.problems) or None,
    )


_KEYS: Final = ("name", "unique_key", "concurrency_key")


def is_undecoded(value: Any) -> bool:
    """Whether it is text that cannot be searched for, because it is not UTF-8."""
    return isinstance(value, UndecodedText)


def task_start_from_row(row: Row, width: int) -> Task:
    """The task of a row whose long columns may have been cut after so many characters; `truncated` names those."""
    cut = tuple(column for column in _LONG if row[column] is not None and len(row[column]) >= width)
    if not cut:
        return task_from_row(row)
    start = {column: _start(column, row[column]) for column in cut}
    return replace(task_from_row({**row, **start}), truncated=cut)


_LONG: Final = ("args", "kwargs", "tags", "headers", "result", "history", "log", "error", "progress_message")


def _start(column: str, text: str) -> str | None:
    if column in ("error", "progress_message"):
        return text
    try:
        return dumps(loads_start(text)) if column == "kwargs" else None if column != "tags" else "{}"
    except ValueError:
        return "null"


class RowReader:
    """Reads the columns of one row separately: one that cannot be read does not affect the others."""

    __slots__ = ("_row", "problems")

    def __init__(self, row: Row) -> None:
        self._row = row
        self.problems: list[str] = []

    def read(self, column: str, decode: Callable[[Any], Any], instead: Any = None) -> Any:
        """The value of a column; one that cannot be read is replaced, and noted in `problems`."""
        try:
            return decode(self._row[column])
        except Exception as error:  # noqa: BLE001  other programs may have written anything there
            self.problems.append(f"{column} cannot be read ({reason_of(error)})")
            return instead


def reason_of(error: BaseException) -> str:
    """Why something cannot be read, in one short line."""
    return str(error).partition("\n")[0][:200] or type(error).__name__


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
        "marks",
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
            self.version,
            self.attempts,
            self.max_retries,
            self.created_at,
            self.name,
            self.kwargs,
            self.rare,  # What most tasks do not have is sent separately.
        ) = fields
        self.timeout_seconds: float | None = None
        self.retry_count = self.lost_count = 0
        self.marks = 0
        if type(self.rare) is int:  # Children, of which there may be many, often have nothing but their marks.
            self.marks, self.rare = self.rare, None
        elif self.rare is not None:
            (_, self.retry_count, self.lost_count, _, _, self.timeout_seconds, _, _, _, _, marks) = self.rare
            self.marks = marks or 0

    @property
    def marks_when_claimed(self) -> int:
        """Its marks before this attempt recorded anything."""
        rare = self.fields[-1]
        return rare if type(rare) is int else 0 if rare is None else rare[-1] or 0

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
        ordinary: Sequence[Any] = (self.created_at, 0, 0, 0, {}, None, None, None, None, None, None)
        scheduled_at, _, _, priority, tags, _, _, unique_key, concurrency_key, expires_at, _ = self.rare or ordinary
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


class BrokenTask(NamedTuple):
    """A task that was claimed and cannot be read, and why."""

    id: str
    seq: int
    version: int
    reason: str


def claimed_from_text(text: str | None, claim: Sequence[Any]) -> tuple[list[ClaimedTask], list[BrokenTask]]:
    """The tasks of a claim, and those of them that cannot be read: each fails alone."""
    if not text:
        return [], []
    try:
        return [ClaimedTask(fields, claim) for fields in loads(f"[{text}]")], []
    except ValueError:
        pass  # at least one of them; below each is read alone
    tasks: list[ClaimedTask] = []
    broken: list[BrokenTask] = []
    for line in _BETWEEN.split(text):
        try:
            tasks.append(ClaimedTask(loads(line), claim))
        except ValueError as error:
            task_id, seq, version = loads(f"{_HEAD.match(line)[0]}]")  # type: ignore[index]
            broken.append(BrokenTask(task_id, seq, version, reason_of(error)))
    return tasks, broken


_BETWEEN: Final = re.compile(r',\n(?=\["[-0-9a-f]{36}",)')
"""What is between two tasks of a claim; no JSON that a database writes has a line end inside."""
_HEAD: Final = re.compile(r'\["[-0-9a-f]{36}",\d+,\d+')
"""How each begins: its id, position and version, which only the database writes."""


def worker_from_row(row: Row) -> WorkerInfo:
    """The worker instance of a row; a report of it that cannot be read counts as empty."""
    reader = RowReader(row)
    info = reader.read("info", _object, {})
    return WorkerInfo(
        instance=uuid(row["instance"]),
        worker_id=row["worker_id"],
        host=row["host"],
        pid=row["pid"],
        started_at=required_moment(row["started_at"]),
        heartbeat_at=required_moment(row["heartbeat_at"]),
        names=tuple(info.get("names") or reader.read("names", json_value, ())),
        concurrency=row["concurrency"],
        idle=bool(row["idle"]),
        alive=row["silent_for"] <= row["timeout_seconds"],
        running=row["running"],
        memory_bytes=info.get("memory_bytes"),
        stuck_threads=info.get("stuck_threads", 0),
        retention=info.get("retention", ""),
        limits=info.get("limits", {}),
        release=info.get("release"),
        stopping=bool(info.get("stopping")),
    )


def ended_worker_from_row(row: Row) -> EndedWorker:
    """The ended worker instance of a row."""
    return EndedWorker(
        instance=uuid(row["instance"]),
        worker_id=row["worker_id"],
        host=row["host"],
        pid=row["pid"],
        release=row["release"],
        started_at=required_moment(row["started_at"]),
        heartbeat_at=required_moment(row["heartbeat_at"]),
        ended_at=required_moment(row["ended_at"]),
        ending=row["ending"],
        tasks=row["tasks"],
    )


def required_moment(value: datetime | str | float) -> datetime:
    """The same for a time that is always there."""
    parsed = moment(value)
    assert parsed is not None
    return parsed


def json_value(text: str | None) -> Any:
    """The value of a JSON column."""
    return None if text is None else loads(text)


def _object(text: str | None) -> Any:
    value = json_value(text)
    if value is not None and not isinstance(value, dict):
        raise ValueError("it is no object")
    return value  # pyright: ignore[reportUnknownVariableType]


def _lines(text: str | None) -> tuple[LogLine, ...]:
    return tuple(
        LogLine(line["attempt"], line["elapsed"], line["level"], line["text"]) for line in json_value(text) or ()
    )


def _with_tracebacks(past: list[Attempt], error: str | None) -> list[Attempt]:
    """Attempts with the traceback that each shares with the one before it; the last one's is the task's error."""
    shared = error if not any(each.traceback for each in past) else None
    filled: list[Attempt] = []
    for each in past:
        shared = each.traceback or shared
        filled.append(each if each.traceback or each.error is None else replace(each, traceback=shared))
    return filled


def _history(row: Row) -> tuple[Attempt, ...]:
    """The stored past attempts, and the successful last one, which lives in the row's own columns."""
    past = [
        Attempt(
            each["number"],
            moment(each["started_at"]),
            moment(each["ended_at"]),
            each["worker_id"],
            each["outcome"],
            each["error"],
            each.get("release"),
            each.get("traceback"),
        )
        for each in json_value(row["history"]) or ()
    ]
    past = _with_tracebacks(past, row["error"])
    if row["state"] == TaskState.COMPLETED:
        started, ended = moment(row["started_at"]), moment(row["completed_at"])
        past.append(Attempt(row["attempts"], started, ended, row["finished_by"], "completed"))
    return tuple(past)
