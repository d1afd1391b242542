"""Calling a task's function in its context, and in a transaction that also completes the task if it asks for one."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from enum import Enum
from types import TracebackType
from typing import Any, Final, Protocol, Self

from tasklib.core.calls.base_exceptions import carry, carrying
from tasklib.core.calls.context import TaskContext
from tasklib.core.calls.current import HasContext, activate
from tasklib.core.calls.middleware import Middleware, wrap, wrap_async
from tasklib.core.calls.own_tasks import own_task
from tasklib.core.codec import encode_result
from tasklib.core.outcome import completed
from tasklib.core.time.timing import Timing
from tasklib.definition import Definition
from tasklib.errors import ClaimLost, DatabaseBusy, DatabaseUnavailable
from tasklib.storage.database import Database
from tasklib.storage.operations.attempts import complete_tasks
from tasklib.storage.rows import ClaimedTask
from tasklib.storage.statement import Operation
from tasklib.worker.execution.dependencies import (
    RunAsync,
    run_on_this_loop,
    with_dependencies,
    with_dependencies_async,
)
from tasklib.worker.workflows.transactions import joined, not_begun


class Committed(Enum):
    """The outcome of a transactional task that leaves nothing to record: its completion was committed together with its
    effects, or refused because the attempt was lost, and undone with them."""

    COMMITTED = "committed"


COMMITTED: Final = Committed.COMMITTED

log = logging.getLogger("tasklib.worker")


class CallEnvironment(Protocol):
    """What calls need of the queue: in a worker it is the queue itself."""

    @property
    def database(self) -> Database:
        """The database in which transactional tasks write."""
        ...

    @property
    def timing(self) -> Timing:
        """The clock by which calls are measured."""
        ...

    @property
    def middleware(self) -> Sequence[Middleware]:
        """The middleware around each function."""
        ...


class Caller:
    """Makes the calls of one worker, or of one of its child processes."""

    def __init__(
        self, environment: CallEnvironment, *, max_result_bytes: int, run_async: RunAsync | None = None
    ) -> None:
        """`run_async` runs a coroutine for a blocking call where no event loop runs in another thread."""
        self._queue = environment
        self._max_result_bytes = max_result_bytes
        self._run_async = run_async

    def prepare(
        self,
        definition: Definition,
        task: ClaimedTask,
        attempt: HasContext,
        refuse_late: Callable[[], None] = lambda: None,
    ) -> Callable[[], Any]:
        """The call to make: it blocks, or returns an awaitable for a coroutine function.

        The stored arguments are converted here, so that one that does not fit is this task's failure alone.
        """
        args, kwargs = definition.call_with(task.kwargs, attempt)
        function = self.function_of(definition, attempt)
        if middleware := self._queue.middleware:
            function = (wrap_async if definition.is_async else wrap)(function, middleware, attempt.context)
        call = functools.partial(function, *args, **kwargs)
        if definition.options.transactional:
            run = self._transactional_async if definition.is_async else self._transactional
            return functools.partial(run, call, task, attempt.context, refuse_late)
        return functools.partial(_plain_async if definition.is_async else _plain, call, attempt)

    def function_of(self, definition: Definition, attempt: HasContext) -> Callable[..., Any]:
        """The function, which gets its dependencies if it has any."""
        if not definition.dependencies:
            return definition.function
        if definition.is_async:
            return with_dependencies_async(definition, attempt, self._queue.timing)
        return with_dependencies(definition, attempt, self._run_async or run_on_this_loop())

    def _transactional(
        self, call: Callable[[], Any], task: ClaimedTask, context: TaskContext, refuse_late: Callable[[], None]
    ) -> Any:
        database = self._queue.database
        with _TransactionalCall(task, self._queue.timing) as attempt, database.transaction() as transaction:
            attempt.begun = True
            with joined(context, database, transaction):
                result = call()
            refuse_late()
            transaction.run(lambda: self._complete(task, result, attempt.started, context))
        return COMMITTED

    async def _transactional_async(
        self, call: Callable[[], Any], task: ClaimedTask, context: TaskContext, refuse_late: Callable[[], None]
    ) -> Any:
        database = self._queue.database
        attempt = _TransactionalCall(task, self._queue.timing)

        async def run() -> None:
            async with database.atransaction() as transaction:
                attempt.begun = True
                with joined(context, database, transaction), attempt.noting():
                    result = await call()
                refuse_late()
                attempt.returned = True
                await transaction.arun(lambda: self._complete(task, result, attempt.started, context))

        with attempt:
            # Once the function has returned, a request to stop comes too late: whether COMMIT succeeds decides.
            await _uncancelled(own_task(carrying(run()), owner=context), lambda: attempt.returned)
        return COMMITTED

    def _complete(self, task: ClaimedTask, result: Any, started: float, context: TaskContext) -> Operation[None]:
        """The last statement of the transaction: fenced, so that effects of an attempt that was lost are undone."""
        text = encode_result(result, limit=self._max_result_bytes)
        moment = self._queue.timing.monotonic()
        done = completed(task, text, started, moment, context.reported)
        if (yield from complete_tasks([done], moment=moment)):
            raise ClaimLost(task.task("").id, task.version)


class _TransactionalCall:
    """The progress of a transactional call, which decides what an error means that the function did not raise."""

    def __init__(self, task: ClaimedTask, timing: Timing) -> None:
        self._task = task
        self.started = timing.monotonic()
        self.begun = self.returned = False
        self._raised: Exception | None = None

    def __enter__(self) -> Self:
        return self

    @contextmanager
    def noting(self) -> Generator[None]:
        """Remember what the function raises: it decides the outcome even if the rollback is interrupted."""
        try:
            yield
        except GeneratorExit as error:
            raise carry(error) from None  # asyncio would take a GeneratorExit of a task for the end of the event loop.
        except Exception as error:
            self._raised = error
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        task = self._task
        if isinstance(error, asyncio.CancelledError) and self._raised is not None:
            raise self._raised from None
        if isinstance(error, ClaimLost) and (str(error.task_id), error.version) == (task.id, task.version):
            log.warning("late write refused: task %s was no longer ours", task.id, extra={"task_id": task.id})
            return True
        if isinstance(error, DatabaseBusy | DatabaseUnavailable) and not self.begun:
            log.warning(
                "task %s is postponed, its transaction cannot begin: %s", task.id, error, extra={"task_id": task.id}
            )
            raise not_begun(error) from error
        return False


async def _uncancelled(work: asyncio.Future[None], too_late: Callable[[], bool]) -> None:
    """Wait for the end of the work, and pass a cancellation on to it unless it is too late for one."""
    while True:
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if work.done():
                raise
            if not too_late():
                work.cancel()


def _plain(call: Callable[[], Any], attempt: HasContext) -> Any:
    with activate(attempt):
        return call()


async def _plain_async(call: Callable[[], Any], attempt: HasContext) -> Any:
    with activate(attempt):
        return await call()
