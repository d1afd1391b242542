"""Ids of tasks: UUIDs that know their queue, and many of them in little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Protocol, overload
from uuid import UUID

from tasklib.core.task import TaskBatch
from tasklib.errors import InvalidTaskId, NotInitialized

if TYPE_CHECKING:  # `TaskId` alone is `TaskId[Any]`; typing's own TypeVar has defaults from Python 3.13 on
    from typing_extensions import TypeVar

    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)


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

    It asks the queue that made it; one made from text, `TaskId(text)`, asks the default queue.

    Examples:
        >>> task_id = add.submit(1, 2)  # TaskId[int], because add returns an int
        >>> task_id.created
        True
        >>> queue.process_batch()
        1
        >>> task_id.wait(timeout=60) + 1  # blocks; `await task_id.await_(timeout=60)` does not
        4
    """

    __slots__ = ("_source", "created")
    created: bool
    _source: ResultSource | None

    def __init__(self, value: UUID | str, created: bool = True) -> None:
        super().__init__(int=require_id(value).int)
        object.__setattr__(self, "created", created)
        object.__setattr__(self, "_source", None)

    def wait(self, timeout: float | None = None) -> R_co:
        """What the task returned, once it has; WaitTimeout after `timeout` seconds, TaskFailed if it did not complete.

        The value has the type that the function's annotation says, if the function is defined in this program.

        Examples:
            >>> task_id = add.submit(1, 2)
            >>> queue.process_batch()
            1
            >>> task_id.wait(timeout=60)
            3
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

    @property
    def source(self) -> ResultSource | None:
        """The queue it asks; None for the default one."""
        return self._source

    def _queue(self) -> ResultSource:
        return default_source.get() if self._source is None else self._source

    if not TYPE_CHECKING:  # for a type checker no attribute can be set, as with every UUID

        def __setattr__(self, name: str, value: Any) -> None:
            if name != "__orig_class__":  # set by TaskId[int](...), and of no use
                super().__setattr__(name, value)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """An argument, a result or the value of a step may be one: in JSON it is the text of its UUID."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(_as_task_id, core_schema.uuid_schema())

    def __copy__(self) -> TaskId[R_co]:
        return self

    def __deepcopy__(self, memo: Any) -> TaskId[R_co]:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return TaskId, (self.id, self.created)


def _as_task_id(value: UUID) -> TaskId[Any]:
    return value if isinstance(value, TaskId) else TaskId(value)


def require_id(value: UUID | str) -> UUID:
    """The id as a UUID; what cannot be one is an InvalidTaskId that says what was given instead."""
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


class TaskIds(Sequence[TaskId[Any]]):
    """The ids of a bulk submission in its order, sixteen bytes each, and how many rows were new.

    Made with `keep=False` it forgets the ids and only counts, for streams too long to remember.

    Examples:
        >>> ids = add.submit_many({"a": number} for number in range(5000))
        >>> len(ids), ids.created, queue.get(ids[0]).kwargs
        (5000, 5000, {'a': 0})
    """

    __slots__ = ("_bytes", "_keep", "created", "found", "source", "total")

    def __init__(self, *, keep: bool = True) -> None:
        self._bytes = bytearray()
        self.found: set[int] = set()
        """Positions of those that were stored before, under their unique key."""
        self._keep = keep
        self.source: ResultSource | None = None
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

    @classmethod
    def _of(cls, data: bytes, keep: bool, found: Iterable[int], total: int, created: int) -> TaskIds:
        ids = cls(keep=keep)
        ids._bytes += data
        ids.found.update(found)
        ids.total, ids.created = total, created
        return ids

    def made_by(self, source: ResultSource) -> None:
        """Let each id ask this queue for its result; called by the queue that made them."""
        self.source = source

    def extend(self, ids: Iterable[TaskId] | TaskIds) -> None:
        """Add the ids of one statement."""
        if isinstance(ids, TaskIds):
            self.total += ids.total
            self.created += ids.created
            self.source = ids.source or self.source
            if self._keep:
                self.found.update(len(self) + position for position in ids.found)
                self._bytes += bytes(ids)
            return
        for task_id in ids:
            self.total += 1
            self.created += task_id.created
            self.source = task_id.source or self.source
            if self._keep:
                if not task_id.created:
                    self.found.add(len(self))
                self._bytes += task_id.bytes

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled without its queue, as a TaskId is."""
        return TaskIds._of, (bytes(self._bytes), self._keep, self.found, self.total, self.created)

    def __copy__(self) -> TaskIds:
        copied = self._of(bytes(self._bytes), self._keep, self.found, self.total, self.created)
        copied.source = self.source
        return copied

    def __deepcopy__(self, memo: Any) -> TaskIds:
        return self.__copy__()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """They too may be stored as a value: in JSON a list of texts."""
        from pydantic_core import core_schema

        ids = core_schema.list_schema(core_schema.uuid_schema())
        return core_schema.json_or_python_schema(
            json_schema=core_schema.no_info_after_validator_function(_as_task_ids, ids),
            python_schema=core_schema.union_schema(
                [core_schema.is_instance_schema(cls), core_schema.no_info_after_validator_function(_as_task_ids, ids)]
            ),
            serialization=core_schema.plain_serializer_function_ser_schema(_as_texts),
        )

    def __len__(self) -> int:
        return len(self._bytes) // 16

    def __bytes__(self) -> bytes:
        return bytes(self._bytes)

    @overload
    def __getitem__(self, index: int) -> TaskId[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[TaskId[Any]]: ...
    def __getitem__(self, index: int | slice) -> TaskId[Any] | list[TaskId[Any]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        raw = bytes(self._bytes[position * 16 : position * 16 + 16])
        task_id: TaskId[Any] = TaskId(UUID(bytes=raw), created=position not in self.found)
        if self.source is not None:
            task_id.made_by(self.source)
        return task_id

    def __iter__(self) -> Iterator[TaskId[Any]]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<TaskIds: {self.total} tasks, {self.created} new>"


def _as_task_ids(ids: Iterable[UUID]) -> TaskIds:
    found = TaskIds()
    found.extend(map(_as_task_id, ids))
    return found


def _as_texts(ids: Iterable[UUID]) -> list[str]:
    return list(map(str, ids))
