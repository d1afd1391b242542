"""How an attempt ends where its result or exception is not all: its workflow may decide, or a step be to blame."""

from __future__ import annotations

from dataclasses import replace

from tasklib.core.calls.context import TaskContext
from tasklib.core.calls.signals import Restart
from tasklib.core.lifecycle import Ending
from tasklib.core.outcome import Raised, decide
from tasklib.core.retry import RetryPolicy
from tasklib.core.texts.error_text import describe
from tasklib.definition import Definition, TaskOptions
from tasklib.errors import Abort, InvalidArguments, NonDeterminism
from tasklib.storage.operations.workflows.marks import HAS_STEPS, HAS_UNDOS
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.workflows.drivers import AwaitingWorkflow, BlockingWorkflow
from tasklib.worker.workflows.records import code_hash
from tasklib.worker.workflows.steps import failed_step


def decided(
    task: ClaimedTask,
    definition: Definition,
    workflow: AwaitingWorkflow | BlockingWorkflow | None,
    error: BaseException | None = None,
) -> Ending | None:
    """The ending that the workflow decides, whatever the function returned or raised; None if it decides none.

    A workflow that waits is suspended, even if its function caught that.  One whose code does not match the recorded
    steps is parked: it has not failed, and new code or a person resumes it.
    """
    mismatch: BaseException | None = None
    if workflow is not None:
        if workflow.engine.suspension is not None:
            return workflow.engine.suspension
        mismatch = workflow.engine.mismatch
    if mismatch is None and isinstance(error, InvalidArguments) and error.stored and task.marks & HAS_STEPS:
        mismatch = error
    if mismatch is None and isinstance(error, NonDeterminism):
        mismatch = error
    if mismatch is None:
        return None
    code = f"code {code_hash(definition.function)}"
    return Ending.park(task.id, task.version, waits_for=code, error=describe(mismatch))


def refuse_forgotten(workflow: AwaitingWorkflow | BlockingWorkflow | None) -> None:
    """Abort if a function has returned without awaiting a call of its context: that call did nothing."""
    name = None if workflow is None else workflow.close_forgotten()
    if name is not None:
        raise Abort(
            f"ctx.{name}(...) was called and never awaited, so it did nothing; write `await ctx.{name}(...)`, "
            "or make the function a plain `def`, where it blocks"
        ) from None


def deciding(task: ClaimedTask, error: BaseException) -> BaseException:
    """The error that decides how the attempt ends: a restart that is not possible becomes a final failure."""
    if not isinstance(error, Restart):
        return error
    if error.name != task.name:
        return Abort(f"task {task.name!r} raised the restart of {error.name!r}; a task restarts itself only")
    if task.marks & HAS_UNDOS:
        return Abort(
            f"task {task.name!r} cannot restart while undos are bound: they belong to the steps that it would forget; "
            "let it end, and submit a new one"
        )
    return error


def failed(
    task: ClaimedTask, error: BaseException, policy: RetryPolicy, options: TaskOptions, context: TaskContext
) -> Ending:
    """The ending of an attempt that failed, without secrets; if a step caused it, the next attempt runs that again."""
    ending = decide(task, Raised(error), policy, options)
    return replace(ending, reopen=failed_step(error)).redacted(context.hide.text)
