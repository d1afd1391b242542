"""Calling a task's function in its context, and in a transaction that also completes the task if it asks for one."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from tasklib.codec import encode_result
from tasklib.context import TaskContext, activate
from tasklib.definition import Definition
from tasklib.errors import ClaimLost
from tasklib.middleware import Middleware, wrap, wrap_async
from tasklib.storage.database import Database
from tasklib.storage.operations.attempts import Completion, complete_tasks
from tasklib.storage.rows import ClaimedTask
from tasklib.storage.statement import Operation

COMMITTED: Final = object()
"""The outcome of a transactional task: its completion is committed together with its effects already."""


class Caller:
    """Makes the calls of one worker, or of one of its child processes."""

    def __init__(
        self,
        database: Callable[[], Database],
        *,
        hooks: Sequence[Middleware],
        max_result_bytes: int,
        now: Callable[[], datetime | None],
    ) -> None:
        self._database = database
        self._hooks = hooks
        self._max_result_bytes = max_result_bytes
        self._now = now

    def prepare(self, definition: Definition, task: ClaimedTask, context: TaskContext) -> Callable[[], Any]:
        """The call to make: blocking, or giving something to await for a coroutine function.

        The stored arguments are converted here, so that a misfit is this task's failure alone.
        """
        args, kwargs = definition.call_with(task.kwargs, context)
        function = definition.function
        if self._hooks:
            function = (wrap_async if definition.is_async else wrap)(function, self._hooks, context)
        call = functools.partial(function, *args, **kwargs)
        if definition.options.transactional:
            run = self._transactional_async if definition.is_async else self._transactional
            return functools.partial(run, call, task, context)
        return functools.partial(_plain_async if definition.is_async else _plain, call, context)

    def _transactional(self, call: Callable[[], Any], task: ClaimedTask, context: TaskContext) -> Any:
        started = time.monotonic()
        database = self._database()
        with database.transaction() as transaction:
            context.join(database, transaction.connection)
            with activate(context):
                result = call()
            transaction.run(lambda: self._complete(task, result, started))
        return COMMITTED

    async def _transactional_async(self, call: Callable[[], Any], task: ClaimedTask, context: TaskContext) -> Any:
        started = time.monotonic()
        database = self._database()
        async with database.atransaction() as transaction:
            context.join(database, transaction.connection)
            with activate(context):
                result = await call()
            await transaction.arun(lambda: self._complete(task, result, started))
        return COMMITTED

    def _complete(self, task: ClaimedTask, result: Any, started: float) -> Operation[None]:
        """The last statement of the transaction: fenced, so that effects of an attempt that was lost are undone."""
        text = encode_result(result, limit=self._max_result_bytes)
        done = Completion(task.id, task.version, text, started, time.monotonic())
        if (yield from complete_tasks([done], self._now())):
            raise ClaimLost(task.task("").id, task.version)


def _plain(call: Callable[[], Any], context: TaskContext) -> Any:
    with activate(context):
        return call()


async def _plain_async(call: Callable[[], Any], context: TaskContext) -> Any:
    with activate(context):
        return await call()
