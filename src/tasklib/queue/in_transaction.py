"""Submitting in the transaction of a web request, as a dependency of FastAPI."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, overload

from tasklib.core.task_id import TaskId
from tasklib.errors import ConfigurationError
from tasklib.submission import Submitter

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TransactionSubmitter:
    """Submits tasks in one open transaction: they exist once it is committed, and never if it is rolled back.

    Examples:
        >>> queue = TaskQueue("sqlite:///app.db")
        >>> send_receipt = queue.task(name="send_receipt")(lambda order: None)
        >>> applied = queue.migrate()
        >>> session = sqlite3.connect("app.db")
        >>> task_id = TransactionSubmitter(session).submit(send_receipt, 7)
        >>> session.rollback()  # what else the request wrote is gone, and so is the task
        >>> queue.count()
        0
        >>> session.close()
    """

    connection: Any
    """The session or connection, as `options(connection=...)` takes it."""

    @overload
    def submit(self, task: Submitter[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> TaskId[T]: ...
    @overload
    def submit(self, task: Submitter[P, T], /, *args: P.args, **kwargs: P.kwargs) -> TaskId[T]: ...
    def submit(self, task: Submitter[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> TaskId[Any]:
        """Store a task with these arguments: `tasks.submit(send_receipt, order_id=7)`.

        Examples:
            >>> def create_order(order: int, tasks: TransactionSubmitter) -> None:  # a route
            ...     tasks.submit(add, order, b=2)
        """
        return task.options(connection=self.connection).submit(*args, **kwargs)

    @overload
    async def asubmit(
        self, task: Submitter[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> TaskId[T]: ...
    @overload
    async def asubmit(self, task: Submitter[P, T], /, *args: P.args, **kwargs: P.kwargs) -> TaskId[T]: ...
    async def asubmit(self, task: Submitter[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> TaskId[Any]:
        """The awaiting form of `submit`, for an asynchronous session."""
        return await task.options(connection=self.connection).asubmit(*args, **kwargs)


def session_submitter(session: Any) -> Callable[..., TransactionSubmitter]:
    """A dependency of FastAPI that submits in the transaction of another one."""
    try:
        fastapi = importlib.import_module("fastapi")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "queue.submitter() makes a dependency of FastAPI, which is not installed; in other frameworks write "
            "task.options(connection=session).submit(...)"
        ) from error
    depends = fastapi.params.Depends
    # FastAPI shares a session only between dependencies of one scope: a mark is used as it is.
    marks = [each for each in (session, *getattr(session, "__metadata__", ())) if isinstance(each, depends)]
    if not marks and not callable(session):
        raise ConfigurationError(
            "queue.submitter() takes what gives the session: a function, Depends(function), or an Annotated type "
            f"with one, as in submitter(get_session); got {session!r}"
        )

    mark: Any = marks[0] if marks else fastapi.Depends(session)

    def submitter(session: Any = mark) -> TransactionSubmitter:
        return TransactionSubmitter(session)

    return submitter
