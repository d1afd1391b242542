"""Running one claimed task: its function is called in the right place, bounded in time, and its end is told."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import time
from collections.abc import Callable
from typing import Any

from tasklib.codec import encode_result
from tasklib.context import TaskContext, WorkerState, activate
from tasklib.definition import Definition, TaskOptions
from tasklib.errors import TaskNotRegistered, TaskTimeout
from tasklib.lifecycle import Ending
from tasklib.retry import RetryPolicy
from tasklib.storage.operations.attempts import Completion
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.outcome import ending_for
from tasklib.worker.threads import TaskThreads

UNWIND_SECONDS = 5.0
"""How long a coroutine may take to end after it was cancelled; then it is abandoned and said to be."""

log = logging.getLogger("tasklib.worker")


class Execution:
    """One attempt in progress."""

    def __init__(self, runner: Runner, task: ClaimedTask) -> None:
        self.task = task
        self.runner = runner
        self.started = 0.0
        self.cancelled = False
        self.released = False
        self.fenced = False
        self.context = TaskContext(
            functools.partial(task.task, runner.worker_id),
            state=runner.state,
            worker_id=runner.worker_id,
            report=functools.partial(runner.report, task),
        )
        self._work: asyncio.Future[Any] | None = None
        self._stop = asyncio.Event()

    def cancel(self) -> None:
        """End the work because a person asked for it."""
        self.cancelled = True
        self._end()

    def release(self) -> None:
        """End the work because the worker stops; the attempt is not spent."""
        self.released = True
        self._end()

    def fence(self) -> None:
        """End the work because the task is no longer ours; whatever comes of it is refused anyway."""
        self.fenced = True
        self._end()

    async def run(self) -> Completion | Ending | None:
        """Run the attempt to its end; None if there is nothing left to write."""
        self.started = time.monotonic()
        try:
            result = await self._bounded()
            if self.fenced:
                return None
            text = encode_result(result, limit=self.runner.max_result_bytes)
            return Completion(self.task.id, self.task.version, text, self.started, time.monotonic())
        except _Stopped:
            return self._stopped()
        except Exception as error:
            if self.cancelled or self.released or self.fenced:
                return self._stopped()
            return self._failed(error)

    def _end(self) -> None:
        self.context._cancel()
        self._stop.set()

    def _stopped(self) -> Ending | None:
        if self.fenced:
            return None
        if self.cancelled:
            ending = Ending.cancel(self.task.id, self.task.version)
        else:
            ending = Ending.release(self.task.id, self.task.version)
        return ending.between(self.started, time.monotonic())

    def _failed(self, error: Exception) -> Ending:
        definition = self.runner.find(self.task.name)
        options = definition.options if definition is not None else TaskOptions()
        ending = ending_for(self.task, options, error, self.runner.retry_policy)
        log.log(
            logging.INFO if ending.error is None else logging.WARNING,
            "task %s %s attempt %d ended: %s (%s)",
            self.task.name,
            self.task.id,
            self.task.attempts,
            ending.event.value,
            type(error).__name__,
            extra={"task_id": self.task.id, "task_name": self.task.name, "attempt": self.task.attempts},
        )
        return ending.between(self.started, time.monotonic())

    async def _bounded(self) -> Any:
        """The function's result, or TaskTimeout, or _Stopped; in each case the work has ended or was abandoned."""
        definition = self.runner.find(self.task.name)
        if definition is None:
            raise TaskNotRegistered(self.task.name)
        args, kwargs = definition.call_with(self.task.kwargs, self.context)
        work = self._work = self._start(definition, args, kwargs)
        stop = asyncio.ensure_future(self._stop.wait())
        try:
            timeout = self.task.timeout_seconds
            await asyncio.wait({work, stop}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            timed_out = not self._stop.is_set()
            if timed_out:
                self.context._cancel()
            return await self._unwind(definition, work, timed_out)
        finally:
            stop.cancel()

    async def _unwind(self, definition: Definition, work: asyncio.Future[Any], timed_out: bool) -> Any:
        """End work that must stop: a coroutine is cancelled, a thread is asked, and waited for if a person asked."""
        if definition.is_async:
            work.cancel()
            await asyncio.wait({work}, timeout=UNWIND_SECONDS)
            if not work.done():
                log.error("task %s %s swallowed its cancellation and was abandoned", self.task.name, self.task.id)
        elif not timed_out and not self.released and not self.fenced:
            # A thread cannot be ended from outside: it is asked through ctx.cancelled, and its end is awaited.
            await asyncio.wait({work}, timeout=self._remaining())
            timed_out = not work.done()
        else:
            self.runner.abandon(self, work)
        if work.done() and not work.cancelled() and not timed_out and work.exception() is None:
            return work.result()
        if timed_out:
            assert self.task.timeout_seconds is not None
            raise TaskTimeout(self.task.timeout_seconds)
        raise _Stopped

    def _remaining(self) -> float | None:
        timeout = self.task.timeout_seconds
        return None if timeout is None else max(0.0, self.started + timeout - time.monotonic())

    def _start(self, definition: Definition, args: tuple[Any, ...], kwargs: dict[str, Any]) -> asyncio.Future[Any]:
        if definition.is_async:
            return asyncio.ensure_future(self._call_async(definition, args, kwargs))
        context = contextvars.copy_context()
        return self.runner.threads.run(functools.partial(context.run, self._call, definition, args, kwargs))

    def _call(self, definition: Definition, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with activate(self.context):
            return definition.function(*args, **kwargs)

    async def _call_async(self, definition: Definition, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with activate(self.context):
            return await definition.function(*args, **kwargs)


class Runner:
    """What every execution of one worker shares."""

    def __init__(
        self,
        *,
        find: Callable[[str], Definition | None],
        worker_id: str,
        state: WorkerState,
        retry_policy: RetryPolicy,
        max_result_bytes: int,
        report: Callable[[ClaimedTask, float, str | None], None],
    ) -> None:
        self.find = find
        self.worker_id = worker_id
        self.state = state
        self.retry_policy = retry_policy
        self.max_result_bytes = max_result_bytes
        self.report = report
        self.threads = TaskThreads()
        self.stuck: set[asyncio.Future[Any]] = set()

    def abandon(self, execution: Execution, work: asyncio.Future[Any]) -> None:
        """Leave a thread that does not end; it is counted until it comes back."""
        log.error(
            "task %s %s does not end; its thread is abandoned and its late result will be refused",
            execution.task.name,
            execution.task.id,
        )
        self.stuck.add(work)
        work.add_done_callback(self._returned)

    def _returned(self, work: asyncio.Future[Any]) -> None:
        self.stuck.discard(work)
        if not work.cancelled():
            work.exception()  # Looked at, so that asyncio does not complain that nobody did.


class _Stopped(Exception):
    """The work ended because it was told to."""
