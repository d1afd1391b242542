"""One method, two forms: an operation written once becomes a blocking method and an awaiting one.

    class TaskQueue:
        @operation
        def get(self, task_id: UUID) -> Operation[Task | None]:
            return (yield from tasks.get_task(task_id))

        aget = get.as_async

`queue.get(id)` blocks, `await queue.aget(id)` does not, and both run the same generator.  It runs up to its first
statement before a connection is taken, so that arguments which cannot be right are refused without a database.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from tasklib.errors import ConfigurationError
from tasklib.storage.database import Database
from tasklib.storage.statement import Operation

P = ParamSpec("P")
T = TypeVar("T")


class HasDatabase(Protocol):
    """Whatever has operations needs a database to run them on."""

    @property
    def database(self) -> Database:
        """Where the operations run."""
        ...


S = TypeVar("S", bound=HasDatabase)


class operation(Generic[S, P, T]):  # noqa: N801  a decorator
    """Turns a generator method into a blocking method; `.as_async` is the awaiting form."""

    repeatable = True

    def __init__(self, function: Callable[Concatenate[S, P], Operation[T]]) -> None:
        self.__doc__ = function.__doc__
        self.as_async: _AsyncForm[S, P, T] = _AsyncForm(function, repeatable=self.repeatable)
        repeatable = self.repeatable

        # Made once: wrapped anew at each access, it would cost a third of a call that sends nothing.
        @functools.wraps(function)
        def blocking(target: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return target.database.run(lambda: function(target, *args, **kwargs), repeatable=repeatable)

        self._blocking = blocking

    @overload
    def __get__(self, instance: None, owner: type[S]) -> Callable[Concatenate[S, P], T]: ...
    @overload
    def __get__(self, instance: S, owner: type[S]) -> Callable[P, T]: ...
    def __get__(self, instance: S | None, owner: type[S]) -> Any:
        return self._blocking if instance is None else MethodType(self._blocking, instance)


class single_try(operation[S, P, T]):  # noqa: N801  a decorator
    """An operation that is not tried again after a lost answer: the second try would do it a second time."""

    repeatable = False


def as_operation(method: Callable[P, T]) -> Callable[P, Operation[T]]:
    """The operation behind a blocking method of an object, to be run as a part of another operation."""
    assert isinstance(method, MethodType)
    return functools.partial(method.__func__.__wrapped__, method.__self__)  # type: ignore[attr-defined]


def require_asyncio() -> None:
    """Refuse to await anything where no event loop of asyncio runs, instead of failing deep inside."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigurationError(
            "the awaiting methods of tasklib run on asyncio, and no event loop of asyncio runs here; under Trio call "
            "the blocking form in a thread: await trio.to_thread.run_sync(queue.get, task_id)"
        ) from None


class _AsyncForm(Generic[S, P, T]):
    """The awaiting form of an operation."""

    def __init__(self, function: Callable[Concatenate[S, P], Operation[T]], *, repeatable: bool) -> None:
        summary = (function.__doc__ or "").partition("\n")[0]
        self.__doc__ = f"The awaiting form of `{function.__name__}`: {summary[:1].lower()}{summary[1:]}"

        @functools.wraps(function)
        async def awaiting(target: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            require_asyncio()
            return await target.database.arun(lambda: function(target, *args, **kwargs), repeatable=repeatable)

        awaiting.__doc__ = self.__doc__
        self._awaiting = awaiting

    @overload
    def __get__(self, instance: None, owner: type[S]) -> Callable[Concatenate[S, P], Awaitable[T]]: ...
    @overload
    def __get__(self, instance: S, owner: type[S]) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, instance: S | None, owner: type[S]) -> Any:
        return self._awaiting if instance is None else MethodType(self._awaiting, instance)
