"""Where a function runs: a coroutine on the event loop, a plain function in a thread."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from tasklib.worker.threads import TaskThreads

COMMITTED: Final = object()
"""The outcome of a transactional task: its completion is committed together with its effects already."""


@dataclass(frozen=True, slots=True)
class Work:
    """A call in progress."""

    place: str
    outcome: asyncio.Future[Any]
    end: Callable[[], object]
    """Ends the call as far as that is possible."""
    ends_surely: bool
    """Whether `end` really ends it, soon."""


class Places:
    """Starts each function where it belongs."""

    def __init__(
        self,
        database: Database,
        *,
        hooks: Sequence[Middleware],
        max_result_bytes: int,
        now: Callable[[], datetime | None],
    ) -> None:
        self._database = database
        self._hooks = hooks
        self._max_result_bytes = max_result_bytes
        self._now = now
        self._threads = TaskThreads()

    @staticmethod
    def runs_here(definition: Definition, task: ClaimedTask) -> bool:
        """Whether the function is a coroutine that the attempt's own asyncio task may run."""
        options = definition.options
        return definition.is_async and not options.transactional and options.isolation != "process"

    def start(self, definition: Definition, task: ClaimedTask, context: TaskContext) -> Work:
        """Begin the call; the stored arguments are converted here, so that a misfit is this task's failure alone."""
        args, kwargs = definition.call_with(task.kwargs, context)
        function = definition.function
        if self._hooks:
            function = (wrap_async if definition.is_async else wrap)(function, self._hooks, context)
        call = functools.partial(function, *args, **kwargs)
        if definition.is_async:
            run = self._transactional_async if definition.options.transactional else self._plain_async
            coroutine = asyncio.ensure_future(run(call, task, context))
            return Work("coroutine", coroutine, coroutine.cancel, ends_surely=True)
        run_in_thread = self._transactional if definition.options.transactional else self._plain
        copied = contextvars.copy_context()
        outcome = self._threads.run(lambda: copied.run(run_in_thread, call, task, context))
        return Work("thread", outcome, lambda: None, ends_surely=False)

    def close(self) -> None:
        """Let idle threads end."""
        self._threads.close()

    @staticmethod
    def _plain(call: Callable[[], Any], task: ClaimedTask, context: TaskContext) -> Any:
        with activate(context):
            return call()

    @staticmethod
    async def _plain_async(call: Callable[[], Any], task: ClaimedTask, context: TaskContext) -> Any:
        with activate(context):
            return await call()

    def _transactional(self, call: Callable[[], Any], task: ClaimedTask, context: TaskContext) -> Any:
        started = time.monotonic()
        with self._database.transaction() as transaction:
            context.join(self._database, transaction.connection)
            with activate(context):
                result = call()
            transaction.run(lambda: self._complete(task, result, started))
        return COMMITTED

    async def _transactional_async(self, call: Callable[[], Any], task: ClaimedTask, context: TaskContext) -> Any:
        started = time.monotonic()
        async with self._database.atransaction() as transaction:
            context.join(self._database, transaction.connection)
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
