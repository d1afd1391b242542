"""Values that describe a queue: its workers, counts and errors, and the filter that selects tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from tasklib.core.texts.search_text import ANY_TIME, Range


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Selects the tasks of a list, a count or a bulk action; an empty filter selects all."""

    states: tuple[str, ...] = ()
    name: str | None = None
    tags: Mapping[str, Any] | None = None
    ids: tuple[UUID, ...] | None = None
    unique_key: str | None = None
    concurrency_key: str | None = None
    fingerprint: str | None = None
    """Only tasks that failed for good with this fingerprint; empty for those without one."""
    search: str | None = None
    arguments: Mapping[str, str] | None = None
    """Plain values of the payload by their paths, as texts."""
    worker: str | None = None
    """Only tasks with an attempt that this worker ran, or runs."""
    release: str | None = None
    """Only tasks with an attempt by this release."""
    duration: Range = ANY_TIME
    """How long the last attempt ran, or has been running."""
    wait: Range = ANY_TIME
    """How long a task waited for its first attempt, if that was its only one."""
    created_after: datetime | None = None
    created_before: datetime | None = None
    completed_after: datetime | None = None
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
    """A worker instance as it last reported itself.

    Examples:
        >>> [worker.id for worker in queue.workers()]  # none has run yet
        []
    """

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
    """The release of the code it runs; None if it was given none."""
    stopping: bool = False
    """Whether it lets its last tasks end and takes no more, as of its last heartbeat."""

    def takes(self, name: str) -> bool:
        """Whether it claims tasks of this name.

        Examples:
            >>> [worker.takes("add") for worker in queue.workers()]
            []
        """
        return self.alive and not self.stopping and name in self.names


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
    """How many tasks are in each state, in total and by name.

    Examples:
        >>> task_id = add.submit(1)
        >>> stats = queue.stats()
        >>> stats.total, stats.pending, stats.by_name
        (1, 1, ...)
    """

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
    """The same counts of each name that has tasks, zeros included."""

    @property
    def total(self) -> int:
        """All tasks in the table."""
        return self.pending + self.running + self.completed + self.failed + self.cancelled + self.buried
