"""The values that everything else uses: a task, its attempts, and a task to be stored.  No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NoReturn, Protocol, overload
from uuid import UUID

from tasklib.errors import InvalidTaskId, NotInitialized

if TYPE_CHECKING:  # `TaskId` alone is `TaskId[Any]`; typing's own TypeVar has defaults from Python 3.13 on
    from typing_extensions import TypeVar

    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)

OnConflict = Literal["return", "raise", "replace"]
DEFAULT_RETRIES: Final = 3
"""Retries by default; also shown for a row that has no number of its own yet."""
SUBMITTER_HEADER: Final = "tasklib.submitter"
"""The header of a row with a unique key that holds a digest of its sender over HTTP."""


class TaskState(StrEnum):
    """The state of a task; `failed` waits for its retry while `next_retry_at` is set, and is final otherwise."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    BURIED = "buried"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One past attempt of a task, as kept on its row."""

    number: int
    started_at: datetime | None
    ended_at: datetime | None
    worker_id: str | None
    outcome: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line a task logged through its context."""

    attempt: int
    elapsed: float
    """Seconds since the attempt began."""
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Task:
    """A task as it stood in the database when it was read."""

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
    """True while the task waits for its first start or was released."""
    return task.state is TaskState.PENDING


def is_running(task: Task) -> bool:
    """True while a worker holds the task."""
    return task.state is TaskState.RUNNING


def is_completed(task: Task) -> bool:
    """True once the task's function returned."""
    return task.state is TaskState.COMPLETED


def is_failed(task: Task) -> bool:
    """True while the last attempt failed, whether or not another one follows."""
    return task.state is TaskState.FAILED


def is_terminal(task: Task) -> bool:
    """True once nothing will happen to the task by itself."""
    return task.completed_at is not None


def has_result(task: Task) -> bool:
    """True if a result is stored (it may be `{"value": None}`)."""
    return task.result is not None


def has_error(task: Task) -> bool:
    """True if the last attempt left an error."""
    return task.error is not None


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


class ResultSource(Protocol):
    """Waits for the value that a task returns; a queue."""

    def wait_for_result(self, task_id: UUID, timeout: float | None) -> Any:
        """The value, once the task has completed; blocks until then."""
        ...

    async def await_result(self, task_id: UUID, timeout: float | None) -> Any:
        """The awaiting form of `wait_for_result`."""
        ...


class TaskId(UUID, Generic[R_co]):
    """The id of a submitted task: a UUID that knows what its task returns, and whether a new row was stored for it.

        task_id = resize.submit("cat.png")     # TaskId[Size], if resize returns a Size
        size = task_id.wait(timeout=60)        # blocks;  await task_id.await_(timeout=60) does not

    It asks the queue that made it; one made from text, `TaskId(text)`, asks the default queue.
    """

    __slots__ = ("_source", "created")
    created: bool
    _source: ResultSource | None

    def __init__(self, value: UUID | str, created: bool = True) -> None:
        super().__init__(int=_as_uuid(value).int)
        object.__setattr__(self, "created", created)
        object.__setattr__(self, "_source", None)

    def wait(self, timeout: float | None = None) -> R_co:
        """What the task returned, once it has; WaitTimeout after `timeout` seconds, TaskFailed if it did not complete.

        The value has the type that the function's annotation says, if the function is defined in this program.
        """
        value: R_co = self._queue().wait_for_result(self.id, timeout)
        return value

    async def await_(self, timeout: float | None = None) -> R_co:
        """The awaiting form of `wait`."""
        value: R_co = await self._queue().await_result(self.id, timeout)
        return value

    @property
    def id(self) -> UUID:
        """The id as a plain UUID."""
        return UUID(int=self.int)

    def made_by(self, source: ResultSource) -> None:
        """Ask this queue for the result; called by the queue that made the id."""
        object.__setattr__(self, "_source", source)

    def _queue(self) -> ResultSource:
        return default_source.get() if self._source is None else self._source

    if not TYPE_CHECKING:  # for a type checker no attribute can be set, as with every UUID

        def __setattr__(self, name: str, value: Any) -> None:
            if name != "__orig_class__":  # set by TaskId[int](...), and of no use
                super().__setattr__(name, value)

    def __copy__(self) -> TaskId[R_co]:
        return self

    def __deepcopy__(self, memo: Any) -> TaskId[R_co]:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return TaskId, (self.id, self.created)


def _as_uuid(value: UUID | str) -> UUID:
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise InvalidTaskId(value) from None


class _DefaultSource:
    """The queue that an id made from text asks."""

    def __init__(self) -> None:
        self.get: Callable[[], ResultSource] = self._missing

    @staticmethod
    def _missing() -> NoReturn:
        raise NotInitialized


default_source: Final = _DefaultSource()
"""Set by the module of the default queue, which this one cannot import."""


class TaskIds(Sequence[UUID]):
    """The ids of a bulk submission in its order, sixteen bytes each, and how many rows were new.

    Made with `keep=False` it forgets the ids and only counts, for streams too long to remember.
    """

    __slots__ = ("_bytes", "_keep", "created", "total")

    def __init__(self, *, keep: bool = True) -> None:
        self._bytes = bytearray()
        self._keep = keep
        self.total = 0
        self.created = 0

    @classmethod
    def of_batch(cls, batch: TaskBatch) -> TaskIds:
        """The ids of a batch; all of it was new."""
        ids = cls()
        ids.total = ids.created = batch.count
        start = batch.like.id.bytes[:-2]
        ids._bytes += start.join([b"", *(number.to_bytes(2, "big") for number in range(batch.count))])
        return ids

    def extend(self, ids: Iterable[TaskId] | TaskIds) -> None:
        """Add the ids of one statement."""
        if isinstance(ids, TaskIds):
            self.total += ids.total
            self.created += ids.created
            if self._keep:
                self._bytes += bytes(ids)
            return
        for task_id in ids:
            self.total += 1
            self.created += task_id.created
            if self._keep:
                self._bytes += task_id.bytes

    def __len__(self) -> int:
        return len(self._bytes) // 16

    def __bytes__(self) -> bytes:
        return bytes(self._bytes)

    @overload
    def __getitem__(self, index: int) -> UUID: ...
    @overload
    def __getitem__(self, index: slice) -> list[UUID]: ...
    def __getitem__(self, index: int | slice) -> UUID | list[UUID]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = range(len(self))[index] * 16
        return UUID(bytes=bytes(self._bytes[position : position + 16]))

    def __iter__(self) -> Iterator[UUID]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<TaskIds: {self.total} tasks, {self.created} new>"


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks a list, a count or a bulk action means; empty means all."""

    states: tuple[str, ...] = ()
    name: str | None = None
    tags: Mapping[str, Any] | None = None
    ids: tuple[UUID, ...] | None = None
    unique_key: str | None = None
    concurrency_key: str | None = None
    fingerprint: str | None = None
    """Only tasks that failed for good with this fingerprint; empty for those without one."""
    search: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    completed_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Tasks of one name that failed for good in the same way."""

    id: str
    """Short and the same everywhere: made of name and fingerprint."""
    name: str
    fingerprint: str | None
    """The exception, and the function in which it was raised; None if there is none."""
    count: int
    first_seen: datetime
    last_seen: datetime
    example: UUID
    """The task that failed last."""
    message: str
    """What its error said."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker instance as it last reported itself."""

    instance: UUID
    worker_id: str
    host: str
    pid: int
    started_at: datetime
    heartbeat_at: datetime
    names: tuple[str, ...]
    concurrency: int
    idle: bool
    alive: bool
    running: int
    memory_bytes: int | None = None
    """Memory of its process at the last heartbeat; None if unknown."""
    stuck_threads: int = 0
    """Threads that are stuck in timed-out tasks."""
    retention: str = ""
    """Its retention rules; empty: it removes nothing."""
    limits: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    """Its own limits by task name, as of its last heartbeat: `max_running`, `rate`, `tokens`."""
    release: str | None = None
    """The release of the code it runs; None if it was not told."""


@dataclass(frozen=True, slots=True)
class EndedWorker:
    """A worker instance that has ended."""

    instance: UUID
    worker_id: str
    host: str
    pid: int
    release: str | None
    started_at: datetime
    heartbeat_at: datetime
    ended_at: datetime
    ending: str
    """`stopped` in order, or `lost`: killed, or silent for too long."""
    tasks: int
    """How many tasks it held, which others run again."""


@dataclass(frozen=True, slots=True)
class QueueStats:
    """How many tasks are in each state, in total and by name."""

    pending: int
    running: int
    completed: int
    failed: int
    cancelled: int
    buried: int
    delayed: int
    retrying: int
    waiting: int
    """Of those pending: workflows that are suspended until something happens."""
    by_name: Mapping[str, Mapping[str, int]]

    @property
    def total(self) -> int:
        """All tasks in the table."""
        return self.pending + self.running + self.completed + self.failed + self.cancelled + self.buried
