"""Which task the running code is part of."""

from __future__ import annotations

from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Protocol, TypeVar, overload

from tasklib.core.calls.context import StepContext, TaskContext
from tasklib.errors import ContextError

_T = TypeVar("_T")


@overload
def current_context() -> TaskContext: ...
@overload
def current_context(default: _T, /) -> TaskContext | _T: ...
def current_context(*default: Any) -> Any:
    """The context of the task this code runs in; outside one the default, or ContextError without one.

    Examples:
        >>> def log_somewhere_deep() -> None:
        ...     current_context().log("hello from attempt %d", current_context().attempt)
        >>> @queue.task
        ... def outer() -> None:
        ...     log_somewhere_deep()
        >>> task_id = outer.submit()
        >>> queue.process_batch()
        1
        >>> queue.wait(task_id).log[0].text
        'hello from attempt 1'
        >>> print(current_context(None))
        None
    """
    found = _current.get()
    if found is not None:
        return found if isinstance(found, TaskContext) else found.context
    if default:
        return default[0]
    raise ContextError(
        "no task is running here; call this inside a task (threads started by a task need "
        "contextvars.copy_context().run), or give a default: current_context(None)"
    )


def running_attempt() -> object:
    """The attempt this code is part of, the same object each time; None outside one."""
    found = _current.get()
    return found.part_of if isinstance(found, StepContext) else found


def transaction_here(connection: Any, database: object) -> Any:
    """The transaction that a write joins: on the caller's connection, or that of a transactional task of this database
    that runs here; None if neither is open."""
    running = current_context(None) if connection is None else None
    return connection if running is None else running.transaction_of(database)


class HasContext(Protocol):
    """An attempt, which makes its context on first use: most tasks never use it."""

    @property
    def context(self) -> TaskContext:
        """The context of the attempt."""
        ...


def make_current(attempt: HasContext) -> None:
    """Make the attempt's context the current one from here on in this context of variables; for the worker."""
    _current.set(attempt)


class activate:  # noqa: N801  used as a function in `with`
    """Make the context, or the attempt's, the current one for the code inside; for the worker."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: TaskContext | HasContext) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._token: Token[TaskContext | HasContext | None] = _current.set(self._context)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._token)


_current: ContextVar[TaskContext | HasContext | None] = ContextVar("tasklib_task", default=None)
