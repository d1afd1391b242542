"""One attempt at a task: how long it may take, why it must stop, what it has reported, and how it ended, once.

This is also the interface between a worker and the places where functions run: event loop, threads, child processes,
cluster. A new executor is one file with a subclass of `Executor`, and one line in `Runner.__init__`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, Final, Protocol
from uuid import UUID

from tasklib.core.calls.base_exceptions import is_interrupt, uncarried
from tasklib.core.calls.context import Progress, TaskContext, context_class
from tasklib.core.calls.middleware import ErrorHook, Middleware, call_error_hooks
from tasklib.core.calls.resources import WorkerState
from tasklib.core.codec import encode_result
from tasklib.core.lifecycle import Ending
from tasklib.core.outcome import Cancelled, Completion, Released, completed, decide
from tasklib.core.retry import RetryPolicy
from tasklib.core.task import LogLine
from tasklib.core.time.timing import Timer, Timing
from tasklib.definition import Definition, secrets_of
from tasklib.errors import ClaimLost, TaskTimeout
from tasklib.storage.database import Database
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.call import Committed
from tasklib.worker.recording.notes import Notes
from tasklib.worker.workflows.drivers import AwaitingWorkflow, BlockingWorkflow, Conditions, workflow_for
from tasklib.worker.workflows.ending import decided, deciding, failed, refuse_forgotten
from tasklib.worker.workflows.engine import Engine
from tasklib.worker.workflows.journal import Journal

UNWIND_SECONDS = 5.0
"""How long work may take to end after it was stopped; then it is abandoned, and a log line says so."""

Ended = Completion | Ending | Committed

_making_context: Final = threading.Lock()


class StopReason(Enum):
    """Why an attempt must end before its function has returned."""

    TIMED_OUT = "its timeout has passed"
    CANCELLED = "a person has cancelled it"
    RELEASED = "the worker stops, and gives the task back"
    FENCED = "the task is, or soon will be, no longer this worker's"


@dataclass(frozen=True, slots=True)
class AttemptSettings:
    """What all attempts of one worker share."""

    worker_id: str
    state: WorkerState
    middleware: Sequence[Middleware]
    error_hooks: Sequence[ErrorHook]
    retry_policy: RetryPolicy
    max_result_bytes: int
    timing: Timing
    workflows: Conditions


class AttemptRunner(Protocol):
    """What executors and attempts call of the worker's `Runner`: executors take attempts from it, attempts report to
    it."""

    settings: AttemptSettings
    notes: Notes
    journal: Journal
    database: Database

    def has_next(self, executor: Executor) -> bool:
        """Whether an attempt may start in this executor now."""
        ...

    def take(self, executor: Executor) -> Attempt | None:
        """The next attempt that may start in this executor now; None if there is none, or another executor's comes
        first."""
        ...

    def hold_slot(self, attempt: Attempt) -> None:
        """Count an attempt that did not end at once as running: it holds a slot until it ends."""

    def note_running(self, attempt: Attempt) -> None:
        """Note that the task's code is about to run, and may from now on crash the worker's process."""

    def use_free_slots(self) -> None:
        """Start held tasks, because a slot may be free."""

    def resize(self, slots: int) -> None:
        """Let this many attempts run at once from now on."""

    def start_elsewhere(self, attempt: Attempt) -> None:
        """Pass on an attempt that this executor cannot start, to another executor."""

    def completed(self, ends: Sequence[tuple[Attempt, Completion]]) -> None:
        """Record attempts that have succeeded."""

    def ended(self, attempt: Attempt, ended: Ended) -> None:
        """Record how an attempt ended."""

    def abandoned(self, attempt: Attempt) -> None:
        """Count an attempt whose work does not end, and that is no longer waited for."""


class Executor(Protocol):
    """Runs attempts: on the event loop, in threads, in child processes."""

    name: str
    stops_surely: bool
    """Whether `stop` is certain to end the work soon."""
    shares_process: bool
    """Whether a function that crashes takes the worker's process with it: if so, a suspect task runs alone."""

    def accepts(self, definition: Definition, task: ClaimedTask) -> bool:
        """Whether this executor can run the task; the first executor that accepts it gets it."""
        ...

    def has_room(self, attempt: Attempt) -> bool:
        """Whether one more attempt may start although all slots are taken, because its wait would be negligible."""
        return False

    def start(self, runner: AttemptRunner) -> None:
        """Start attempts while the runner has some for this executor, one by one or in a batch."""

    def stop(self, attempt: Attempt, reason: StopReason) -> None:
        """End the work as far as that is possible."""

    async def close(self) -> None:
        """Release the executor's threads, processes or connections."""


class Attempt:
    """One attempt: held, running, ended.  Every executor drives it by the same few calls."""

    __slots__ = (
        "_context",
        "_runner",
        "_timer",
        "definition",
        "executor",
        "is_ended",
        "started",
        "stop_reason",
        "task",
        "work",
        "workflow",
    )

    def __init__(self, runner: AttemptRunner, task: ClaimedTask, definition: Definition, executor: Executor) -> None:
        self.task = task
        self.definition = definition
        self.executor = executor
        self.started = 0.0
        self.stop_reason: StopReason | None = None
        self.is_ended = False
        self.work: asyncio.Future[Any] | None = None
        """Done when the work has really ended, which may be after the attempt; None if it ended at once."""
        self._runner = runner
        self._context: TaskContext | None = None
        self._timer: Timer | None = None
        self.workflow: AwaitingWorkflow | BlockingWorkflow | None = None
        """Its steps and waits; None until the function uses one."""
        if task.timeout_seconds is None:
            # A row made by hand or by name has no timeout of its own: the definition's applies.
            task.timeout_seconds = definition.options.timeout_seconds

    @property
    def context(self) -> TaskContext:
        """What the function can read and report; made on first use, once, whichever thread asks first."""
        return self._context or self._make_context()

    def _make_context(self) -> TaskContext:
        with _making_context:
            if self._context is None:
                self._context = self._new_context()
            return self._context

    def _new_context(self) -> TaskContext:
        settings = self._runner.settings
        return context_class(self.definition.is_async)(
            partial(self.task.task, settings.worker_id),
            state=settings.state,
            worker_id=settings.worker_id,
            report=partial(self._runner.notes.note_progress, self.task),
            record=self._record_line,
            secrets=partial(secrets_of, self.definition),
            workflow=self._begin_workflow,
        )

    def _begin_workflow(self) -> AwaitingWorkflow | BlockingWorkflow:
        """The attempt's workflow, created by the context's first step, once, whichever thread asks first."""
        return self.workflow or self._make_workflow(self.context)

    def _make_workflow(self, context: TaskContext) -> AwaitingWorkflow | BlockingWorkflow:
        with _making_context:
            if self.workflow is None:
                settings, runner, options = self._runner.settings, self._runner, self.definition.options
                limit, transactional = settings.max_result_bytes, options.transactional
                engine = Engine(
                    self.task, context, settings.timing, max_value_bytes=limit, is_transactional=transactional
                )
                awaits = self.definition.is_async
                self.workflow = workflow_for(
                    engine, runner.journal, lambda: runner.database, settings.workflows, awaits=awaits
                )
            return self.workflow

    def begin(self) -> None:
        """Note that its function is about to be called."""
        self.started = self._runner.settings.timing.monotonic()

    def limit_time(self) -> None:
        """Stop it when its timeout has passed since it started."""
        if self._timer is not None:
            self._timer.cancel()
        if self.task.timeout_seconds is not None and self.stop_reason is None:
            timing = self._runner.settings.timing
            left = self.started + self.task.timeout_seconds - timing.monotonic()
            self._timer = timing.call_later(max(0.0, left), self.stop, StopReason.TIMED_OUT)

    def stop(self, reason: StopReason) -> None:
        """End the work as far as that is possible; the first reason counts, except that a person's request replaces
        it."""
        if reason is StopReason.TIMED_OUT and self.stop_reason is not None and self.executor.stops_surely:
            return  # It is ending already.
        if self.stop_reason is None or (
            reason is StopReason.CANCELLED and self.stop_reason is not StopReason.TIMED_OUT
        ):
            self.stop_reason = reason
        self.context.ask_to_end()
        self.executor.stop(self, reason)

    def abandon_later(self) -> None:
        """Abandon the work unless it ends within `UNWIND_SECONDS` of being stopped."""
        self._runner.settings.timing.call_later(UNWIND_SECONDS, self.abandon)

    def abandon(self) -> None:
        """Stop waiting: the end is recorded now, and a later result of the work is refused."""
        if not self.is_ended:
            self._runner.abandoned(self)
            self.end(self.stopped())

    def refuse_late(self) -> None:
        """Raise if a result counts no more, so that the transaction it belongs to is undone."""
        if self.is_ended:
            raise ClaimLost(UUID(self.task.id), self.task.version)
        if self.stop_reason is StopReason.TIMED_OUT:
            raise TaskTimeout(self.task.timeout_seconds or 0)

    def returned(self, result: Any) -> Ended:
        """How an attempt ended whose function has returned."""
        if isinstance(result, Committed):
            return result
        if self.workflow is not None and (ending := self._decided()) is not None:
            return ending
        if self.stop_reason is StopReason.TIMED_OUT:
            return self.stopped()
        try:
            refuse_forgotten(self.workflow)
            text = encode_result(result, limit=self._runner.settings.max_result_bytes)
        except BaseException as error:  # noqa: BLE001  the serializers of the user's types run here
            return self.raised(error)
        return completed(self.task, text, self.started, self._runner.settings.timing.monotonic(), self.progress)

    def raised(self, error: BaseException) -> Ended:
        """How an attempt ended whose function has raised: a failure, whatever was raised, unless it was asked to
        stop."""
        raised = deciding(self.task, uncarried(error))
        if is_interrupt(raised):
            self.end(self.stopped())
            raise raised
        if (ending := self._decided(raised)) is not None:
            return ending
        return self._failed(raised) if self.stop_reason is None else self.stopped()

    def stopped(self) -> Ending:
        """How an attempt ended that was asked to stop."""
        if self.stop_reason is StopReason.TIMED_OUT:
            return self._failed(TaskTimeout(self.task.timeout_seconds or 0))
        outcome = Cancelled() if self.stop_reason is StopReason.CANCELLED else Released()
        ending = decide(self.task, outcome, self._runner.settings.retry_policy)
        return ending.between(self.started, self._runner.settings.timing.monotonic())

    def settle(self) -> None:
        """Mark it as ended; its executor reports that to the runner together with others."""
        if self._timer is not None:
            self._timer.cancel()
        self.is_ended = True

    def end(self, ended: Ended) -> None:
        """Report to the runner how it ended, once."""
        if self._timer is not None:
            self._timer.cancel()
        if not self.is_ended:
            self.is_ended = True
            if isinstance(ended, Ending):
                ended = replace(ended, progress=self.progress)
            self._runner.ended(self, ended)

    def _decided(self, error: BaseException | None = None) -> Ending | None:
        ending = decided(self.task, self.definition, self.workflow, error)
        return None if ending is None else ending.between(self.started, self._runner.settings.timing.monotonic())

    def _failed(self, error: BaseException) -> Ending:
        settings = self._runner.settings
        call_error_hooks(settings.error_hooks, self.context, error)
        ending = failed(self.task, error, settings.retry_policy, self.definition.options, self.context)
        return ending.between(self.started, settings.timing.monotonic())

    @property
    def progress(self) -> Progress | None:
        """What it has reported last; None if nothing."""
        return None if self._context is None else self._context.reported

    def _record_line(self, level: str, text: str) -> None:
        elapsed = self._runner.settings.timing.monotonic() - self.started
        self._runner.notes.note_line(self.task, LogLine(self.task.attempts, elapsed, level, text))
