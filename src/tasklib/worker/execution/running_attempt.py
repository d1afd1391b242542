"""An attempt where its function runs, in the worker or in a child process: its context, its workflow, and how it ends.

How it ends is decided here alone: from what the function returned or raised, what its workflow has decided, and why it
was stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from tasklib.core.calls.base_exceptions import uncarried
from tasklib.core.calls.context import Progress, TaskContext, context_class
from tasklib.core.calls.middleware import ErrorHook, Middleware, call_error_hooks
from tasklib.core.calls.resources import WorkerState
from tasklib.core.codec import encode_result
from tasklib.core.lifecycle import Ending
from tasklib.core.outcome import Cancelled, Completion, Released, completed, decide
from tasklib.core.retry import RetryPolicy
from tasklib.core.time.timing import Timing
from tasklib.definition import Definition, secrets_of
from tasklib.errors import TaskTimeout
from tasklib.storage.database import Database
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.call import Committed
from tasklib.worker.workflows.drivers import AwaitingWorkflow, BlockingWorkflow, WorkflowSettings, workflow_for
from tasklib.worker.workflows.ending import decided, deciding, failed, refuse_forgotten
from tasklib.worker.workflows.engine import Engine
from tasklib.worker.workflows.journal import StepJournal

Ended = Completion | Ending | Committed

_making: Final = threading.Lock()
"""Held while a context or a workflow is made."""


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
    workflows: WorkflowSettings


class AttemptEnvironment(Protocol):
    """What an attempt needs of the process where it runs."""

    @property
    def settings(self) -> AttemptSettings:
        """What all attempts there share."""
        ...

    @property
    def journal(self) -> StepJournal:
        """Where their workflows record."""
        ...

    @property
    def database(self) -> Database:
        """The queue's own database, so that what a task submits joins its transaction."""
        ...


Where = TypeVar("Where", bound=AttemptEnvironment)


class RunningAttempt(Generic[Where]):
    """One attempt.  Its context is made on first use, and its workflow by the context's first step, each once,
    whichever thread asks first: most tasks use neither."""

    __slots__ = ("_context", "_runner", "definition", "started", "stop_reason", "task", "workflow")

    # Set by the constructors of the subclasses: one is called for each task, and calls no other.
    task: ClaimedTask
    definition: Definition
    started: float
    stop_reason: StopReason | None
    workflow: AwaitingWorkflow | BlockingWorkflow | None
    """Its steps and waits; None until the function uses one."""
    _runner: Where
    _context: TaskContext | None

    @property
    def context(self) -> TaskContext:
        """What the function can read and report."""
        return self._context or self._make_context()

    def _make_context(self) -> TaskContext:
        with _making:
            if self._context is None:
                settings = self._runner.settings
                self._context = context_class(self.definition.is_async)(
                    partial(self.task.task, settings.worker_id),
                    state=settings.state,
                    worker_id=settings.worker_id,
                    report=self._report_progress,
                    record=self._record_line,
                    secrets=partial(secrets_of, self.definition),
                    workflow=self._begin_workflow,
                )
            return self._context

    def _begin_workflow(self) -> AwaitingWorkflow | BlockingWorkflow:
        return self.workflow or self._make_workflow(self.context)

    def _make_workflow(self, context: TaskContext) -> AwaitingWorkflow | BlockingWorkflow:
        with _making:
            if self.workflow is None:
                runner, options, awaits = self._runner, self.definition.options, self.definition.is_async
                settings, transactional = runner.settings, options.transactional
                limit = settings.max_result_bytes
                engine = Engine(
                    self.task, context, settings.timing, max_value_bytes=limit, is_transactional=transactional
                )
                self.workflow = workflow_for(engine, runner.journal, runner, settings.workflows, awaits=awaits)
            return self.workflow

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

    @property
    def progress(self) -> Progress | None:
        """What it has reported last; None if nothing."""
        return None if self._context is None else self._context.reported

    def _decided(self, error: BaseException | None = None) -> Ending | None:
        ending = decided(self.task, self.definition, self.workflow, error)
        return None if ending is None else ending.between(self.started, self._runner.settings.timing.monotonic())

    def _failed(self, error: BaseException) -> Ending:
        settings = self._runner.settings
        call_error_hooks(settings.error_hooks, self.context, error)
        ending = failed(self.task, error, settings.retry_policy, self.definition.options, self.context)
        return ending.between(self.started, settings.timing.monotonic())

    def _report_progress(self, fraction: float, message: str | None) -> None:
        raise NotImplementedError

    def _record_line(self, level: str, text: str) -> None:
        raise NotImplementedError
