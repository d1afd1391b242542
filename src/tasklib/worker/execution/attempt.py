"""Running one claimed task: its function is called in the right place, bounded in time, and its end is told."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tasklib.core.base_exceptions import is_interrupt, outcome_of, uncarried
from tasklib.core.codec import encode_result
from tasklib.core.context import Progress, TaskContext, WorkerState
from tasklib.core.lifecycle import Ending
from tasklib.core.middleware import ErrorHook, Middleware, tell_error
from tasklib.core.outcome import Completion, Raised, decide
from tasklib.core.own_tasks import own_task
from tasklib.core.retry import RetryPolicy
from tasklib.core.task import LogLine, Task
from tasklib.definition import Definition, TaskOptions, secrets_of
from tasklib.errors import TaskNotRegistered, TaskTimeout
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.call import COMMITTED
from tasklib.worker.execution.executor import Places, Work

UNWIND_SECONDS = 5.0
"""How long work may take to end after it was stopped; then it is abandoned and said to be."""

Ended = Completion | Ending | None
log = logging.getLogger("tasklib.worker")


class Execution:
    """One attempt in progress: started by `Places` and watched from here."""

    __slots__ = (
        "_context",
        "_definition",
        "_reported",
        "_runner",
        "_stop",
        "_timer",
        "cancelled",
        "committed",
        "ending",
        "ends_surely",
        "fenced",
        "released",
        "started",
        "task",
        "timed_out",
    )

    _place = "coroutine"

    def __init__(self, runner: Runner, task: ClaimedTask, definition: Definition | None) -> None:
        self.task = task
        self._definition = definition
        self.cancelled = self.released = self.fenced = self.timed_out = self.committed = False
        self.started = time.monotonic()
        self._runner = runner
        self._reported = False
        self._stop: asyncio.Event | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.ends_surely = True
        self._context: TaskContext | None = None
        if definition is not None and task.timeout_seconds is None:
            # A row made by hand or by name carries no limit of its own: the task's holds.
            task.timeout_seconds = definition.options.timeout_seconds
        self._start()

    @property
    def context(self) -> TaskContext:
        """What the function can ask and say; made when somebody first asks."""
        if self._context is None:
            self._context = TaskContext(
                self._whole_task,
                state=self._runner.state,
                worker_id=self._runner.worker_id,
                report=self._note_progress,
                record=self._record,
                secrets=lambda: secrets_of(self._definition),
            )
        return self._context

    def cancel(self) -> None:
        """End the work because a person asked for it."""
        self.cancelled = True
        self._end()

    def release(self) -> None:
        """End the work because the worker stops; the attempt is not spent."""
        self.released = True
        self._end()

    def fence(self) -> None:
        """End the work because the task is, or soon will be, no longer ours: the database refuses what comes late."""
        self.fenced = True
        self._end()

    def tell(self, ended: Ended) -> None:
        """Tell the worker how this attempt ended, once."""
        self._report(ended)

    def _start(self) -> None:
        self.ends_surely = False
        self._stop = asyncio.Event()
        self.ending: asyncio.Future[Any] = own_task(self._run())

    def _whole_task(self) -> Task:
        return self.task.task(self._runner.worker_id)

    def _note_progress(self, fraction: float, message: str | None) -> None:
        self._runner.report(self.task, fraction, message)

    def _record(self, level: str, text: str) -> None:
        elapsed = time.monotonic() - self.started
        self._runner.record(self.task, LogLine(self.task.attempts, elapsed, level, text))

    @property
    def _told_to_stop(self) -> bool:
        return self.cancelled or self.released or self.fenced

    def _end(self) -> None:
        self.context.ask_to_end()
        if self._stop is not None:
            self._stop.set()
        else:
            self._cancel_here()

    def _overtime_here(self) -> None:
        if self._told_to_stop:
            return  # It is ending already, for another reason.
        self.timed_out = True
        self.context.ask_to_end()
        self._cancel_here()

    def _cancel_here(self) -> None:
        self.ending.cancel()
        self._runner.loop.call_later(UNWIND_SECONDS, self._abandon_here)

    def _abandon_here(self) -> None:
        """The coroutine swallowed its cancellation: its end is recorded all the same, and it is left alone."""
        if self._reported:
            return
        self._runner.abandon(self, Work(self._place, self.ending, self.ending.cancel, ends_surely=True))
        self._report(self._failed(_overtime(self.task)) if self.timed_out else self._stopped())

    @property
    def _progress(self) -> Progress | None:
        return None if self._context is None else self._context.reported

    def _report(self, ended: Ended) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._reported:
            self._reported = True
            if isinstance(ended, Ending):
                ended = replace(ended, progress=self._progress)
            self._runner.ended(self, ended)

    async def _run(self) -> None:
        ended: Ended = None
        try:
            ended = await self._attempt()
        finally:
            self._report(ended)

    async def _attempt(self) -> Ended:
        try:
            if self._definition is None:
                raise TaskNotRegistered(self.task.name)
            result = await self._bounded(self._definition)
        except _Stopped:
            return self._stopped()
        except asyncio.CancelledError:
            raise  # The function's own comes as Carried: the event loop is being closed around this attempt.
        except BaseException as error:  # noqa: BLE001
            return self._raised(error)
        return self._returned(result)

    def _returned(self, result: Any) -> Ended:
        """The end of an attempt whose function has returned."""
        if result is COMMITTED:
            self.committed = True
            return None
        if self.timed_out:
            return self._failed(_overtime(self.task))
        try:
            text = encode_result(result, limit=self._runner.max_result_bytes)
        except BaseException as error:  # noqa: BLE001  the serializers of the user's types run here
            return self._raised(error)
        return Completion(self.task.id, self.task.version, text, self.started, time.monotonic(), self._progress)

    def _raised(self, error: BaseException) -> Ended:
        """The end of an attempt whose function has raised: a failure, whatever it was, unless it was told to stop."""
        raised = uncarried(error)
        if is_interrupt(raised):
            self._report(self._stopped())
            raise raised
        if self.timed_out:
            return self._failed(_overtime(self.task))
        return self._stopped() if self._told_to_stop else self._failed(raised)

    def _stopped(self) -> Ending:
        if self.cancelled:
            ending = Ending.cancel(self.task.id, self.task.version)
        else:
            ending = Ending.release(self.task.id, self.task.version)
        return ending.between(self.started, time.monotonic())

    def _failed(self, error: BaseException) -> Ending:
        options = self._definition.options if self._definition is not None else TaskOptions()
        tell_error(self._runner.error_hooks, self.context, error)
        ending = decide(self.task, Raised(error), self._runner.retry_policy, options).redacted(self.context.hide.text)
        return ending.between(self.started, time.monotonic())

    async def _bounded(self, definition: Definition) -> Any:
        """The function's result, or TaskTimeout, or _Stopped; in each case the work has ended or was abandoned."""
        assert self._stop is not None
        work = self._runner.places.start(definition, self.task, self.context)
        self.ends_surely = work.ends_surely
        stop = own_task(self._stop.wait())
        try:
            await asyncio.wait(
                {work.outcome, stop}, timeout=self.task.timeout_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            stop.cancel()
        if work.outcome.done():
            return outcome_of(work.outcome)
        if self._stop.is_set():
            await self._unwind(work)
        else:
            self.context.ask_to_end()
            await self._overtime(work)
        if _succeeded(work.outcome):
            return work.outcome.result()
        raise _Stopped

    async def _overtime(self, work: Work) -> None:
        """End work that ran past its timeout; what it returns now is too late, unless it is committed already."""
        work.end()
        await asyncio.wait({work.outcome}, timeout=UNWIND_SECONDS)
        if not work.outcome.done():
            self._runner.abandon(self, work)
        if _succeeded(work.outcome) and work.outcome.result() is COMMITTED:
            return
        raise _overtime(self.task)

    async def _unwind(self, work: Work) -> None:
        """End work that was stopped from outside."""
        work.end()
        await asyncio.wait({work.outcome}, timeout=UNWIND_SECONDS)
        if not work.outcome.done():
            self._runner.abandon(self, work)


class Runner:
    """What every execution of one worker shares."""

    def __init__(
        self,
        *,
        worker_id: str,
        state: WorkerState,
        places: Places,
        hooks: Sequence[Middleware],
        error_hooks: Sequence[ErrorHook],
        retry_policy: RetryPolicy,
        max_result_bytes: int,
        is_stopping: Callable[[], bool],
        report: Callable[[ClaimedTask, float, str | None], None],
        record: Callable[[ClaimedTask, LogLine], None],
        ended: Callable[[Execution, Ended], None],
    ) -> None:
        self.worker_id = worker_id
        self.state = state
        self.places = places
        self.hooks = hooks
        self.error_hooks = error_hooks
        self.retry_policy = retry_policy
        self.max_result_bytes = max_result_bytes
        self.is_stopping = is_stopping
        self.report = report
        self.record = record
        self.ended = ended
        self.loop = asyncio.get_running_loop()
        self.stuck: set[asyncio.Future[Any]] = set()

    def abandon(self, execution: Execution, work: Work) -> None:
        """Leave work that does not end; it is counted until it comes back."""
        log.error(
            "task %s %s does not end; its %s is abandoned and its late result will be refused",
            execution.task.name,
            execution.task.id,
            work.place,
            extra={"task_id": execution.task.id, "task_name": execution.task.name},
        )
        self.stuck.add(work.outcome)
        work.outcome.add_done_callback(self._returned)

    def _returned(self, outcome: asyncio.Future[Any]) -> None:
        self.stuck.discard(outcome)
        if not outcome.cancelled():
            outcome.exception()  # Looked at, so that asyncio does not complain that nobody did.


class _Stopped(Exception):
    """The work ended because it was told to."""


def _overtime(task: ClaimedTask) -> TaskTimeout:
    return TaskTimeout(task.timeout_seconds or 0)


def _succeeded(outcome: asyncio.Future[Any]) -> bool:
    return outcome.done() and not outcome.cancelled() and outcome.exception() is None
