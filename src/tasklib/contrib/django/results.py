"""A stored task as the framework's TaskResult."""

from __future__ import annotations

import builtins
import functools
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from django.apps import apps
from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from tasklib import errors
from tasklib.contrib.django.calls import POSITIONAL_HEADER, TaskName, signature_of
from tasklib.contrib.django.framework import (
    Task,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultMismatch,
    TaskResultStatus,
)
from tasklib.core.calls.context import TaskContext as RunningContext
from tasklib.core.lifecycle import Phase, phase_of
from tasklib.core.task import Task as StoredTask
from tasklib.core.texts.error_text import summary
from tasklib.errors import ExecutionError


class TaskCancelled(ExecutionError):
    """The task was stopped by a person, or expired before it began; Django's framework shows it as FAILED.

    Examples:
        >>> result = add.enqueue(1)
        >>> cancelled = get_queue().cancel(result.id)
        >>> result.refresh()
        >>> result.errors[-1].exception_class is TaskCancelled
        True
    """


def result_of(stored: StoredTask, backend: Any, finished_by: str | None = None) -> Any:
    """The TaskResult of a task; TaskResultMismatch if its function cannot be imported (any more)."""
    name = TaskName.parse(stored.name)
    task = like(find_task(name.path), stored, name.queue, backend.alias)
    args, kwargs = signature_of(task).as_given(stored.kwargs, _positional(stored))
    past = [each for each in stored.history if each.outcome in _SPENT]
    result = TaskResult(
        task=task,
        id=str(stored.id),
        status=status_of(stored),
        enqueued_at=local(stored.created_at),
        started_at=local(next((each.started_at for each in past), None) or stored.started_at),
        finished_at=local(stored.completed_at),
        last_attempted_at=local(stored.started_at),
        args=args,
        kwargs=kwargs,
        backend=backend.alias,
        errors=list(_errors(stored)),
        worker_ids=_worker_ids(stored, [each.worker_id or "" for each in past], finished_by),
    )
    if stored.result is not None:
        object.__setattr__(result, "_return_value", stored.result.get("value"))
    return result


def context_for(backend: Any, running: RunningContext) -> Any:
    """The framework's context of a running attempt, for tasks that take it."""
    return TaskContext(task_result=result_of(running.task, backend))


def status_of(stored: StoredTask) -> Any:
    """The status that the framework has for it: one that waits for a retry is ready to be executed again."""
    return _STATUS[phase_of(stored)]


@functools.cache
def find_task(path: str) -> Any:
    """The task that is defined there; TaskResultMismatch if there is none.

    Whoever may insert rows chooses the name: only what `@task` decorates is a task, and only modules of the project's
    own apps are imported for it.
    """
    module = path.rpartition(".")[0]
    if module not in sys.modules and not _is_of_project(module):
        raise TaskResultMismatch(f"{path} is not in the package of an installed app, and was not imported")
    try:
        found = import_string(path)
    except Exception as error:  # whatever a module raises when it is imported
        raise TaskResultMismatch(f"there is no task {path} here (any more): {error}") from error
    if not isinstance(found, Task):
        raise TaskResultMismatch(f"{path} is no task; is @task missing?")
    return found


def _is_of_project(module: str) -> bool:
    packages = {config.name for config in apps.get_app_configs()}
    packages.add((settings.SETTINGS_MODULE or "").rpartition(".")[0])  # none where settings are not in a package
    return any(package and f"{module}.".startswith(f"{package}.") for package in packages)


def like(task: Any, stored: StoredTask, queue: str, backend: str) -> Any:
    """The task with the queue, priority and time it was enqueued with; not checked again, because it is history."""
    made = object.__new__(type(task))
    delayed = stored.scheduled_at > stored.created_at
    changes = {
        "priority": stored.priority,
        "queue_name": queue,
        "backend": backend,
        "run_after": local(stored.scheduled_at) if delayed else None,
    }
    for name in type(task).__dataclass_fields__:
        object.__setattr__(made, name, changes.get(name, getattr(task, name)) if name != "run_after" else changes[name])
    return made


def local(moment: datetime | None) -> datetime | None:
    """The moment as the project writes times: without a zone where USE_TZ is off."""
    if moment is None or settings.USE_TZ:
        return moment
    return timezone.make_naive(moment)


def aware(moment: datetime) -> datetime:
    """The moment with a zone, as a queue needs it."""
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment


def class_path(error: str) -> str:
    """The path of the exception class that the text of an error names, importable."""
    named = _CLASS.match(summary(error))
    path = named[1] if named else ""
    if "." in path:
        return path
    # Errors of ours that no function raised are written without their module, and so is what a script defines.
    home = next((each for each in (errors, builtins) if isinstance(getattr(each, path, None), type)), None)
    return f"{home.__name__}.{path}" if home is not None else "builtins.Exception"


def _positional(stored: StoredTask) -> int:
    given = stored.headers.get(POSITIONAL_HEADER)
    return given if isinstance(given, int) else 0


def _errors(stored: StoredTask) -> Iterator[Any]:
    """One for each failed attempt; of the last one the whole traceback is kept."""
    failed = [each.error for each in stored.history if each.error and each.outcome in _SPENT]
    if stored.error is not None:
        failed = [*failed[:-1], stored.error]
    for text in failed:
        yield TaskError(exception_class_path=class_path(text), traceback=text)
    if phase_of(stored) is Phase.CANCELLED:
        path = f"{TaskCancelled.__module__}.{TaskCancelled.__qualname__}"
        yield TaskError(exception_class_path=path, traceback=f"{path}: the task was cancelled")


def _worker_ids(stored: StoredTask, past: list[str], finished_by: str | None) -> list[str]:
    """The worker of each attempt; of early ones among many, and of those before a running one, it may not be known."""
    if phase_of(stored) in (Phase.RUNNING, Phase.COMPLETED):
        past = [*past, stored.worker_id or finished_by or ""]
    known = past[-stored.attempts :] if stored.attempts else []
    return [""] * (stored.attempts - len(known)) + known


_CLASS: Final = re.compile(r"^([A-Za-z_][\w.]*)(?:: |:?$)")
_SPENT: Final = frozenset({"failed", "timeout", "lost", "crashed", "cancelled"})
"""The outcomes of attempts that count."""
_STATUS: Final = {
    Phase.PENDING: TaskResultStatus.READY,
    Phase.RETRYING: TaskResultStatus.READY,
    Phase.RUNNING: TaskResultStatus.RUNNING,
    Phase.COMPLETED: TaskResultStatus.SUCCESSFUL,
    Phase.FAILED: TaskResultStatus.FAILED,
    Phase.CANCELLED: TaskResultStatus.FAILED,
    Phase.BURIED: TaskResultStatus.FAILED,
}
