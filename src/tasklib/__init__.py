"""Durable background tasks on the database you already have: a SQLite file to start, PostgreSQL to scale."""

# Public names are loaded when they are first used: `import tasklib` and `tasklib --help` answer at once, and a program
# that only submits never loads the worker.

from typing import TYPE_CHECKING

from tasklib.installation import foreign_distribution

if TYPE_CHECKING:
    from tasklib.core.calls.context import AsyncTaskContext, TaskContext
    from tasklib.core.calls.current import current_context
    from tasklib.core.calls.groups import Group
    from tasklib.core.calls.middleware import Middleware
    from tasklib.core.calls.resources import Resource, WorkerState, injected
    from tasklib.core.config import Config
    from tasklib.core.insights.explain import Explanation, Reason
    from tasklib.core.queue_info import QueueStats, WorkerInfo
    from tasklib.core.retry import Backoff
    from tasklib.core.schedule import Plan, Schedule
    from tasklib.core.task import (
        Attempt,
        LogLine,
        Task,
        TaskState,
        has_error,
        has_result,
        is_completed,
        is_failed,
        is_pending,
        is_running,
        is_terminal,
    )
    from tasklib.core.task_id import TaskId, TaskIds
    from tasklib.core.time.clock import ManualClock
    from tasklib.errors import (
        Abort,
        ClaimLost,
        ConfigurationError,
        DatabaseBusy,
        DatabaseFull,
        DatabaseReplaced,
        DatabaseUnavailable,
        ForeignTable,
        InvalidArguments,
        InvalidPayload,
        InvalidTaskId,
        InvalidTransition,
        NonDeterminism,
        NotInitialized,
        PermissionDenied,
        ResultError,
        Retry,
        SchemaError,
        SchemaMismatch,
        SchemaMissing,
        SchemaOutdated,
        SchemaTooNew,
        Snooze,
        StepFailed,
        StepKeyError,
        StorageError,
        TaskDefinitionError,
        TaskFailed,
        TaskLibError,
        TaskNotFound,
        TaskNotRegistered,
        TaskTimeout,
        UniqueConflict,
        WaitTimeout,
        WorkerLost,
        WorkerStuck,
    )
    from tasklib.fluent import tq
    from tasklib.queue import TaskQueue
    from tasklib.queue.default import default_queue, get_registered_tasks, get_task, init, list_tasks, submit_task, task
    from tasklib.queue.in_transaction import TransactionSubmitter
    from tasklib.queue.methods.flows import Flow, Node
    from tasklib.task_worker import TaskWorker
else:
    import inspect
    from importlib import import_module

    def task(function=None, /, *, name=None, context=False, **options):
        """Make a function a task of the default queue: `@task` or `@task(max_retries=5, timeout_seconds=30)`.

        Examples:
            >>> init("sqlite:///:memory:")
            >>> @task(name="examples.half", max_retries=5, timeout_seconds=30)
            ... def half(number: int) -> float:
            ...     return number / 2
            >>> task_id = half.submit(7)
            >>> default_queue().process_batch()
            1
            >>> task_id.wait()
            3.5
        """
        from tasklib.queue.default import task as define

        decorate = define(name=name, context=context, **options)
        return decorate if function is None else decorate(function)

    def _shown_by_help(
        function=None,
        /,
        *,
        name=None,
        context=False,
        max_retries=None,
        timeout_seconds=None,
        priority=0,
        tags={},  # noqa: B006  never called, only shown
        retry_on=None,
        abort_on=(),
        retry_policy=None,
        isolation="auto",
        memory_limit_mb=None,
        transactional=False,
        executor=None,
        resources={},  # noqa: B006
        aliases=(),
        max_concurrency=None,
        concurrency_key=None,
        rate=None,
        burst=None,
        max_running=None,
        expires_after=None,
        lifetime_seconds=None,
    ): ...

    # The options are those of TaskOptions, which would take 40 ms to load; a test compares the two.
    task.__signature__ = inspect.signature(_shown_by_help)

    def __getattr__(name):
        if name in __all__:
            # The lightest first: a name is found before what is heavier is loaded.
            for module in (
                "errors",
                "core.task",
                "core.task_id",
                "core.queue_info",
                "core.config",
                "core.retry",
                "core.time.clock",
                "core.schedule",
                "core.insights.explain",
                "core.calls.resources",
                "core.calls.groups",
                "core.calls.context",
                "core.calls.current",
                "core.calls.middleware",
                "queue",
                "queue.methods.flows",
                "queue.default",
                "queue.in_transaction",
                "fluent",
                "task_worker",
            ):
                home = import_module(f"{__name__}.{module}")
                if hasattr(home, name):
                    value = globals()[name] = getattr(home, name)
                    return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})


if foreign_distribution() is not None:
    import warnings

    from tasklib.installation import complaint

    warnings.warn(str(complaint()), RuntimeWarning, stacklevel=2)

__version__ = "0.1.0"

__all__ = [
    "Abort",
    "AsyncTaskContext",
    "Attempt",
    "Backoff",
    "ClaimLost",
    "Config",
    "ConfigurationError",
    "DatabaseBusy",
    "DatabaseFull",
    "DatabaseReplaced",
    "DatabaseUnavailable",
    "Explanation",
    "Flow",
    "ForeignTable",
    "Group",
    "InvalidArguments",
    "InvalidPayload",
    "InvalidTaskId",
    "InvalidTransition",
    "LogLine",
    "ManualClock",
    "Middleware",
    "Node",
    "NonDeterminism",
    "NotInitialized",
    "PermissionDenied",
    "Plan",
    "QueueStats",
    "Reason",
    "Resource",
    "ResultError",
    "Retry",
    "Schedule",
    "SchemaError",
    "SchemaMismatch",
    "SchemaMissing",
    "SchemaOutdated",
    "SchemaTooNew",
    "Snooze",
    "StepFailed",
    "StepKeyError",
    "StorageError",
    "Task",
    "TaskContext",
    "TaskDefinitionError",
    "TaskFailed",
    "TaskId",
    "TaskIds",
    "TaskLibError",
    "TaskNotFound",
    "TaskNotRegistered",
    "TaskQueue",
    "TaskState",
    "TaskTimeout",
    "TaskWorker",
    "TransactionSubmitter",
    "UniqueConflict",
    "WaitTimeout",
    "WorkerInfo",
    "WorkerLost",
    "WorkerState",
    "WorkerStuck",
    "__version__",
    "current_context",
    "default_queue",
    "get_registered_tasks",
    "get_task",
    "has_error",
    "has_result",
    "init",
    "injected",
    "is_completed",
    "is_failed",
    "is_pending",
    "is_running",
    "is_terminal",
    "list_tasks",
    "submit_task",
    "task",
    "tq",
]
