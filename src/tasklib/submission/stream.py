"""Many rows in few statements: read as they come, checked in groups, stored chunk by chunk."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self, TypeAlias, overload

from tasklib.core.config import Config
from tasklib.core.task import NewTask, TaskBatch, first_of_many
from tasklib.core.task_id import TaskId, TaskIds
from tasklib.definition import Definition, Misfit
from tasklib.errors import ConfigurationError, InvalidArguments
from tasklib.submission.submit_options import SubmitOptions

Chunk: TypeAlias = TaskBatch | Sequence[NewTask]
"""What is stored in one statement."""
Stored: TypeAlias = TaskIds | list[TaskId]
"""The ids of a chunk."""

CHUNK = 2000
"""Rows of a bulk submission sent in one statement."""
CHUNK_CHARACTERS = 8 << 20
"""Fewer rows are sent where their JSON is longer than this, to bound the memory of both sides."""
GROUP = 200
"""Rows prepared before other work gets the event loop."""


class TaskStore(Protocol):
    """Makes rows of submissions, and stores them; a TaskQueue."""

    config: Config

    def new_task(self, definition: Definition, kwargs: Any, options: SubmitOptions) -> NewTask:
        """The row of one submission."""
        ...

    @overload
    def submit_new(self, new: TaskBatch, connection: Any = None) -> TaskIds: ...
    @overload
    def submit_new(self, new: Sequence[NewTask], connection: Any = None) -> list[TaskId]: ...
    @overload
    def submit_new(self, new: Chunk, connection: Any = None) -> Stored: ...

    async def asubmit_new(self, new: Chunk, connection: Any = None) -> Stored:
        """The awaiting form of `submit_new`."""
        ...

    async def asubmit_one(self, new: NewTask, connection: Any = None) -> TaskId:
        """Store one row, together with those that are submitted at the same time."""
        ...

    def is_joined(self, connection: Any) -> bool:
        """Whether what is stored joins a transaction that is open already."""
        ...


class Packer:
    """Checks the rows of one call, given group by group, and makes chunks of them.

    Rows that differ in their arguments only are a `TaskBatch`: what they have in common is made and sent once.  With a
    unique key or a concurrency key of its own each row may be stored already, and is a `NewTask`.
    """

    def __init__(self, queue: TaskStore, definition: Definition, options: SubmitOptions) -> None:
        if options.id is not None:
            raise ConfigurationError(
                f"submit_many makes an id for each task of {definition.name!r}, so id={options.id} fits none; "
                "leave it out, or submit one task with it"
            )
        self._queue = queue
        self._definition = definition
        self._options = options
        self._limit = queue.config.max_payload_bytes
        self._alike = options.unique_key is None and not _has_own_keys(definition, options)
        self._seen = 0
        self._start()

    def _start(self) -> None:
        self._count = 0
        self._arrays = list[str]()
        self._new = list[NewTask]()

    @property
    def is_full(self) -> bool:
        """Whether what was added is enough for a statement."""
        return self._count >= CHUNK or sum(map(len, self._arrays)) >= CHUNK_CHARACTERS

    def __len__(self) -> int:
        return self._count

    def add(self, rows: Sequence[Any]) -> None:
        """Check rows; the first that does not fit is a Misfit, counted from the first row of all."""
        try:
            if self._alike:
                self._arrays.append(self._definition.bind_all(rows, limit=self._limit))
            else:
                self._new += [self._new_task(index, row) for index, row in enumerate(rows)]
        except Misfit as misfit:
            raise Misfit(self._seen + misfit.index, misfit.error) from misfit.error
        self._count += len(rows)
        self._seen += len(rows)

    def take(self) -> Chunk:
        """What was added since the last time, to be stored at once."""
        chunk: Chunk = self._new
        if self._alike:
            like = self._queue.new_task(self._definition, None, self._options)
            inputs = f"[{','.join(array[1:-1] for array in self._arrays)}]"
            chunk = TaskBatch(replace(like, id=first_of_many(like.id)), inputs, self._count)
        self._start()
        return chunk

    def _new_task(self, index: int, row: Any) -> NewTask:
        stored = self._definition.bind_row(index, row, limit=self._limit)
        return self._queue.new_task(self._definition, stored, self._options)


def _has_own_keys(definition: Definition, options: SubmitOptions) -> bool:
    """Whether each row's arguments make a concurrency key for it."""
    tags = {**definition.options.tags, **(options.tags or {})}
    return options.concurrency_key is None and any(name not in tags for name in definition.options.key_names())


class Stream:
    """Stores chunk after chunk, one in flight while the next is prepared; each is committed by itself."""

    def __init__(self, queue: TaskStore, connection: Any, ids: TaskIds) -> None:
        self._queue = queue
        self._connection = connection
        # The caller's connection may also be the source of the rows, and does one thing at a time.
        self._overlaps = not queue.is_joined(connection)
        self._ids = ids
        self._in_flight: asyncio.Future[Stored] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leave nothing in flight: after an error the last chunk is stored first, but not after a cancellation."""
        sending = self._in_flight
        if sending is None:
            return
        try:
            if kind is not None and issubclass(kind, Exception):
                await asyncio.wait([sending])
        finally:
            sending.cancel()
            await asyncio.wait([sending])
            if not sending.cancelled():
                sending.exception()  # retrieved, not raised: the error that ended the stream came first

    async def send(self, chunk: Chunk) -> None:
        """Begin to store this chunk once the one before is stored."""
        await self.settle()
        self._in_flight = asyncio.ensure_future(self._queue.asubmit_new(chunk, self._connection))
        if not self._overlaps:
            await self.settle()

    async def settle(self) -> None:
        """Wait for the chunk in flight, and keep its ids."""
        if self._in_flight is not None:
            stored = await self._in_flight
            self._in_flight = None
            self._ids.extend(stored)


def refusal(misfit: Misfit, kept: int) -> InvalidArguments:
    """The error of one row among many: which it is, and how many before it are stored."""
    error = misfit.error
    problems = [f"row {misfit.index + 1:,}: {problem}" for problem in error.problems]
    return type(error)(error.task, problems, kept=kept)


def groups(rows: Iterable[Any]) -> Iterator[list[Any]]:
    """The rows in groups."""
    try:
        iterator = iter(rows)
    except TypeError:
        remedy = "; await asubmit_many(...), which takes it" if isinstance(rows, AsyncIterable) else ""
        raise ConfigurationError(
            f"submit_many takes mappings of arguments, one a task, got {rows!r:.80}{remedy}"
        ) from None
    while group := list(itertools.islice(iterator, GROUP)):
        yield group


async def agroups(rows: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[list[Any]]:
    """The rows in groups; in between other work gets the event loop."""
    if not isinstance(rows, AsyncIterable):
        for group in groups(rows):
            yield group
            await asyncio.sleep(0)
        return
    group = list[Any]()
    async for row in rows:
        group.append(row)
        if len(group) == GROUP:
            yield group
            group = []
            await asyncio.sleep(0)
    if group:
        yield group
