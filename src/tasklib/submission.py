"""From a call to a row: the decorated function, the options of one submission, and merging of concurrent ones."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Self, TypedDict, TypeVar, Unpack
from uuid import UUID
from weakref import WeakKeyDictionary

from tasklib.codec import plain
from tasklib.definition import Definition, TaskOptions
from tasklib.errors import (
    ConfigurationError,
    DatabaseBusy,
    DatabaseFull,
    DatabaseUnavailable,
    InvalidArguments,
    require_aware,
    seconds_of,
)
from tasklib.redaction import SECRETS_HEADER
from tasklib.task import NewTask, OnConflict, TaskId, TaskIds

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

P = ParamSpec("P")
R = TypeVar("R")

CHUNK = 2000
"""Rows of a bulk submission sent in one statement."""
BREATH = 200
"""Rows made ready before others have the event loop."""


class SubmitKeywords(TypedDict, total=False):
    """The fields of SubmitOptions as keyword arguments, so that a type checker finds a misspelt one."""

    delay_seconds: float | timedelta
    run_at: datetime | None
    priority: int | None
    tags: Mapping[str, Any] | None
    max_retries: int | None
    timeout_seconds: float | None
    unique_key: str | None
    on_conflict: OnConflict
    concurrency_key: str | None
    headers: Mapping[str, Any]
    expires_at: datetime | None
    id: UUID | None
    connection: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions:
    """What can be said of one submission beside its arguments; None leaves it to the task or the configuration."""

    delay_seconds: float | timedelta = 0.0
    run_at: datetime | None = None
    priority: int | None = None
    tags: Mapping[str, Any] | None = None
    max_retries: int | None = None
    timeout_seconds: float | None = None
    unique_key: str | None = None
    on_conflict: OnConflict = "return"
    concurrency_key: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    expires_at: datetime | None = None
    id: UUID | None = None
    connection: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "delay_seconds", seconds_of(self.delay_seconds))
        for name, (fits, rule) in _RULES.items():
            value = getattr(self, name)
            if value is not None and not fits(value):
                raise ConfigurationError(f"{name} must be {rule}, got {value!r}")
        for name in ("run_at", "expires_at"):
            moment = getattr(self, name)
            if moment is not None:
                require_aware(moment, name)
        if self.run_at is not None and self.delay_seconds:
            raise ConfigurationError("give either delay_seconds or run_at, not both")

    def with_(self, **changes: Any) -> SubmitOptions:
        """A copy with some options changed; an unknown one is an error that lists the known ones."""
        if not changes:
            return self
        known = {entry.name for entry in fields(self)}
        unknown = sorted(set(changes) - known)
        if unknown:
            raise ConfigurationError(
                f"no such option: {', '.join(unknown)}; the options are {', '.join(sorted(known))}"
            )
        return replace(self, **changes)


def new_task(
    name: str, kwargs: Any, options: SubmitOptions, task: TaskOptions, *, max_retries: int, timeout: float | None
) -> NewTask:
    """The row to store, from the options of the submission, of the task, and of the configuration, in that order."""
    from uuid_utils.compat import uuid7

    first = options.max_retries if options.max_retries is not None else task.max_retries
    limit = options.timeout_seconds if options.timeout_seconds is not None else task.timeout_seconds
    tags = {**task.tags, **(options.tags or {})}
    return NewTask(
        id=options.id or uuid7(),
        name=name,
        kwargs=kwargs,
        delay_seconds=float(options.delay_seconds),  # type: ignore[arg-type]
        run_at=options.run_at,
        max_retries=max_retries if first is None else first,
        timeout_seconds=timeout if limit is None else limit,
        priority=task.priority if options.priority is None else options.priority,
        tags=plain(tags, what=f"tags of {name}") if tags else {},
        unique_key=options.unique_key,
        on_conflict=options.on_conflict,
        concurrency_key=options.concurrency_key or task.key_for(tags),
        headers=plain(dict(options.headers), what=f"headers of {name}") if options.headers else {},
        expires_at=options.expires_at,
    )


def mark_secrets(new: NewTask, definition: Definition | None) -> NewTask:
    """The row, saying which of its arguments the code calls secret, so that those who show it can hide them."""
    secrets = () if definition is None else definition.secrets
    return replace(new, headers={**new.headers, SECRETS_HEADER: list(secrets)}) if secrets else new


class TaskFunction(Generic[P, R]):
    """A function that is also a task: call it as before, or submit it to run in the background."""

    def __init__(self, queue: Callable[[], TaskQueue], definition: Definition, function: Callable[P, R]) -> None:
        self._queue = queue
        self.definition = definition
        self.function = function
        functools.update_wrapper(self, function)

    @property
    def name(self) -> str:
        """The name under which its tasks are stored."""
        return self.definition.name

    @property
    def queue(self) -> TaskQueue:
        """The queue its tasks are stored in; NotInitialized for the default queue before `init`."""
        return self._queue()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the plain function here and now."""
        return self.function(*args, **kwargs)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> TaskId:
        """Store a task with these arguments and return its id after a durable commit."""
        return self.options().submit(*args, **kwargs)

    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> TaskId:
        """The awaiting form of `submit`; concurrent ones are merged into one statement."""
        return await self.options().asubmit(*args, **kwargs)

    def submit_many(self, rows: Iterable[Mapping[str, Any]], *, keep_ids: bool = True) -> TaskIds:
        """Store one task per mapping of arguments, thousands in a statement; any iterable is read as it goes."""
        return self.options().submit_many(rows, keep_ids=keep_ids)

    async def asubmit_many(
        self, rows: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]], *, keep_ids: bool = True
    ) -> TaskIds:
        """The awaiting form of `submit_many`; takes asynchronous iterables too."""
        return await self.options().asubmit_many(rows, keep_ids=keep_ids)

    def options(self, **options: Unpack[SubmitKeywords]) -> Submitter[P]:
        """The same task with options for the submissions made through the answer."""
        return Submitter(self._queue(), self.definition, NO_OPTIONS.with_(**options))

    def __repr__(self) -> str:
        return f"<task {self.name!r}: {self.definition.place}>"


class Submitter(Generic[P]):
    """A task together with the options of its next submissions."""

    def __init__(self, queue: TaskQueue, definition: Definition, options: SubmitOptions) -> None:
        self._queue = queue
        self._definition = definition
        self._options = options

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> TaskId:
        """Store a task with these arguments and return its id after a durable commit."""
        return self._queue.submit_new([self._new(args, kwargs)], self._options.connection)[0]

    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> TaskId:
        """The awaiting form of `submit`."""
        return await self._queue.asubmit_one(self._new(args, kwargs), self._options.connection)

    def submit_many(self, rows: Iterable[Mapping[str, Any]], *, keep_ids: bool = True) -> TaskIds:
        """Store one task per mapping of arguments; each statement's rows are committed together."""
        ids = TaskIds(keep=keep_ids)
        for chunk in _chunks(rows):
            new = [self._row(row, position, ids.total) for position, row in enumerate(chunk, ids.total + 1)]
            ids.extend(self._queue.submit_new(new, self._options.connection))
        return ids

    async def asubmit_many(
        self, rows: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]], *, keep_ids: bool = True
    ) -> TaskIds:
        """The awaiting form of `submit_many`; the next rows are made ready while the database stores the last."""
        ids = TaskIds(keep=keep_ids)
        position, chunk = 0, list[NewTask]()
        async with _Stream(self._queue, self._options.connection, ids) as stream:
            async for row in _each(rows):
                position += 1
                try:
                    chunk.append(self._new((), _mapping(row, self._definition.name)))
                except InvalidArguments as error:
                    await stream.settle()
                    raise _misfit(error, position, ids.total) from error
                if len(chunk) == CHUNK:
                    await stream.send(chunk)
                    chunk = []
                elif position % BREATH == 0:
                    await asyncio.sleep(0)
            if chunk:
                await stream.send(chunk)
            await stream.settle()
        return ids

    def options(self, **options: Unpack[SubmitKeywords]) -> Submitter[P]:
        """The same with some options changed."""
        return Submitter(self._queue, self._definition, self._options.with_(**options))

    def _row(self, row: Any, position: int, kept: int) -> NewTask:
        """One row of many; a misfit says which one it is, and how many before it are stored already."""
        try:
            return self._new((), _mapping(row, self._definition.name))
        except InvalidArguments as error:
            raise _misfit(error, position, kept) from error

    def _new(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewTask:
        kwargs = self._definition.bind(args, kwargs, limit=self._queue.config.max_payload_bytes)
        return self._queue.new_task(self._definition, kwargs, self._options)


class _Stream:
    """Stores chunk after chunk, one on its way while the next is made ready; each is committed by itself."""

    def __init__(self, queue: TaskQueue, connection: Any, ids: TaskIds) -> None:
        self._send = functools.partial(queue.asubmit_new, connection=connection)
        # Whoever gives a connection may use it for the rows' source: it has one thing to do at a time.
        self._overlaps = not queue.is_joined(connection)
        self._ids = ids
        self._on_its_way: asyncio.Future[list[TaskId]] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leave nothing on its way: after an error it is stored first; only who is cancelled does not wait for that."""
        sending = self._on_its_way
        if sending is None:
            return
        try:
            if kind is not None and issubclass(kind, Exception):
                await asyncio.wait([sending])
        finally:
            sending.cancel()
            await asyncio.wait([sending])
            if not sending.cancelled():
                sending.exception()  # seen, and not told: what ended the stream came first

    async def send(self, chunk: Sequence[NewTask]) -> None:
        """Begin to store this chunk, when the one before is stored."""
        await self.settle()
        self._on_its_way = asyncio.ensure_future(self._send(chunk))
        await (asyncio.sleep(0) if self._overlaps else self.settle())

    async def settle(self) -> None:
        """Wait for what is on its way, and keep its ids."""
        if self._on_its_way is not None:
            stored = await self._on_its_way
            self._on_its_way = None
            self._ids.extend(stored)


class Merger:
    """Concurrent submissions of one event loop travel in one statement while another is on its way.

    A lone submission is sent at once; those that arrive meanwhile share the next statement.  Each caller hears of its
    own task only after the commit that holds it.
    """

    def __init__(self, send: Callable[[Sequence[NewTask]], Awaitable[Sequence[TaskId]]]) -> None:
        self._send = send
        self._lanes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Lane] = WeakKeyDictionary()

    async def submit(self, new: NewTask) -> TaskId:
        """Store one task, perhaps together with others."""
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop)
        if lane is None:
            lane = self._lanes[loop] = _Lane(self._send)
        return await lane.submit(new)


class _Lane:
    """The submissions of one event loop."""

    def __init__(self, send: Callable[[Sequence[NewTask]], Awaitable[Sequence[TaskId]]]) -> None:
        self._send = send
        self._waiting: list[tuple[NewTask, asyncio.Future[TaskId]]] = []
        self._sending = False
        self._drainer: asyncio.Task[None] | None = None

    async def submit(self, new: NewTask) -> TaskId:
        # A unique key may raise its own conflict, which is nobody else's.
        if new.unique_key is not None:
            return (await self._send([new]))[0]
        if self._sending:
            answer: asyncio.Future[TaskId] = asyncio.get_running_loop().create_future()
            self._waiting.append((new, answer))
            return await answer
        self._sending = True
        try:
            return (await self._send([new]))[0]
        finally:
            self._sending = bool(self._waiting)
            if self._waiting:
                self._drainer = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:CHUNK], self._waiting[CHUNK:]
                await self._send_batch([entry for entry in batch if not entry[1].done()])
        finally:
            self._sending = False

    async def _send_batch(self, batch: Sequence[tuple[NewTask, asyncio.Future[TaskId]]]) -> None:
        if not batch:
            return
        try:
            ids = await self._send([new for new, _ in batch])
        except Exception as error:  # noqa: BLE001  each caller gets it
            if len(batch) > 1 and not isinstance(error, DatabaseUnavailable | DatabaseBusy | DatabaseFull):
                # One row that is refused must not take the others with it.
                for entry in batch:
                    await self._send_batch([entry])
                return
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
        except BaseException:
            for _, answer in batch:
                answer.cancel()
            raise
        else:
            for (_, answer), task_id in zip(batch, ids, strict=True):
                if not answer.done():
                    answer.set_result(task_id)


def _chunks(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    iterator = iter(rows)
    while chunk := list(itertools.islice(iterator, CHUNK)):
        yield chunk


async def _each(rows: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]]) -> AsyncIterator[Any]:
    if isinstance(rows, AsyncIterable):
        async for row in rows:
            yield row
    else:
        for row in rows:
            yield row


def _misfit(error: InvalidArguments, position: int, kept: int) -> InvalidArguments:
    """The same error of one row among many."""
    return type(error)(error.task, [f"row {position:,}: {problem}" for problem in error.problems], kept=kept)


def _mapping(row: Any, task: str) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise InvalidArguments(task, [f"each row is a mapping of arguments by name, got {row!r}"])
    return row  # pyright: ignore[reportUnknownVariableType]


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or not 0 < len(value) <= 500 or "\0" in value:
        return False
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "run_at": (lambda v: isinstance(v, datetime), "a datetime with a time zone"),
    "expires_at": (lambda v: isinstance(v, datetime), "a datetime with a time zone"),
    "priority": (_is_integer, "a whole number that fits 32 bits"),
    "tags": (lambda v: isinstance(v, Mapping), "a mapping of names to JSON values"),
    "max_retries": (lambda v: _is_integer(v) and v >= 0, "a whole number, 0 or more"),
    "timeout_seconds": (
        lambda v: isinstance(v, int | float) and not isinstance(v, bool) and 0 < v < 1e9,
        "a number of seconds above 0",
    ),
    "unique_key": (_is_text, "a non-empty Unicode string of at most 500 characters"),
    "on_conflict": (lambda v: v in ("return", "raise", "replace"), "'return', 'raise' or 'replace'"),
    "concurrency_key": (_is_text, "a non-empty Unicode string of at most 500 characters"),
    "headers": (lambda v: isinstance(v, Mapping), "a mapping of names to JSON values"),
    "id": (lambda v: isinstance(v, UUID), "a UUID"),
}

NO_OPTIONS: Final = SubmitOptions()
"""What most submissions say: nothing.  Made and checked once."""
