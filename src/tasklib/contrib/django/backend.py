"""The backend of Django's tasks framework: tasks are rows of the project's own database."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cached_property, partial
from importlib import import_module
from typing import Any, Final
from uuid import UUID

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router, transaction
from django.utils import timezone
from django.utils.module_loading import autodiscover_modules

from tasklib.contrib.django.address import url_of
from tasklib.contrib.django.calls import POSITIONAL_HEADER, DjangoDefinition, TaskName, signature_of
from tasklib.contrib.django.database import DjangoDatabase
from tasklib.contrib.django.framework import (
    BaseTaskBackend,
    InvalidTask,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    signals,
    task_backends,
)
from tasklib.contrib.django.options import TasklibTask
from tasklib.contrib.django.results import aware, context_for, find_task, result_of
from tasklib.core.codec import plain
from tasklib.core.config import Config, environment_names
from tasklib.core.task import NewTask
from tasklib.core.task import Task as StoredTask
from tasklib.core.task_id import TaskId
from tasklib.definition import TaskOptions
from tasklib.definition.functions import refuse_unsuitable
from tasklib.errors import ConfigurationError, TaskDefinitionError
from tasklib.queue import TaskQueue
from tasklib.storage.rows import task_from_row
from tasklib.storage.statement import Operation, Statement
from tasklib.submission import SubmitOptions, Submitter

APP: Final = "tasklib.contrib.django"
OWN_OPTIONS: Final = ("database", "dashboard_url", "schedules")
"""Options of the backend beside the fields of `tasklib.Config`."""


class TasklibBackend(BaseTaskBackend):
    """Stores tasks in the database of its OPTIONS, or in the one that the routers choose.

    Examples:
        >>> TASKS = {"default": {"BACKEND": "tasklib.contrib.django.TasklibBackend", "QUEUES": ["default", "emails"]}}
    """

    task_class = TasklibTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, dict(params))
        unknown = self.options.keys() - {*OWN_OPTIONS, *environment_names()}
        if unknown:
            raise ImproperlyConfigured(
                f"TASKS[{alias!r}]['OPTIONS'] has no {', '.join(sorted(unknown))}; it may have "
                f"{', '.join([*OWN_OPTIONS, *environment_names()])}"
            )

    @property
    def database_alias(self) -> str:
        """The alias of the database that holds the tasks."""
        if "database" in self.options:
            return str(self.options["database"])
        if not apps.is_installed(APP):
            return "default"
        from tasklib.contrib.django.models import Task

        return str(router.db_for_write(Task))

    @property
    def config(self) -> Config:
        """The settings of the queue, with the URL of the live connection."""
        given = {name: value for name, value in self.options.items() if name not in OWN_OPTIONS}
        try:
            return Config(**{"database_url": url_of(self.database_alias), "auto_migrate": False, **given})
        except ConfigurationError as error:
            raise ImproperlyConfigured(f"TASKS[{self.alias!r}]['OPTIONS']: {error}") from error

    @property
    def queue(self) -> TaskQueue:
        """The queue on Django's own connection, for everything that the framework has no name for."""
        if self._queue.database.alias != self.database_alias:
            del self._queue
        return self._queue

    @cached_property
    def _queue(self) -> TaskQueue:
        return TaskQueue(self.config, store=DjangoDatabase(self.database_alias))

    def validate_task(self, task: Any) -> None:
        """Refuse a task that could never run; every one that is defined comes by here, and is known from then on."""
        super().validate_task(task)
        try:
            refuse_unsuitable(task.func, task.module_path)
        except TaskDefinitionError as error:
            raise InvalidTask(str(error)) from error
        options = options_of(task)
        if options.transactional and _is_coroutine(task):
            raise InvalidTask(
                f"{task.module_path}: Django has no transaction for coroutines, so it cannot be transactional"
            )
        known_tasks(self.alias).setdefault(task.module_path, task)

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Store the task in the open transaction of its database.

        In a transaction of another database it is stored after that one's commit, and not at all after a rollback.
        """
        self.validate_task(task)
        new = self.new_row(task, args, kwargs)
        result = TaskResult(
            task=task,
            id=str(new.id),
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        return self._store(new, result)

    def get_result(self, result_id: Any) -> Any:
        """The result of a task that any process has enqueued."""
        with suppress(ValueError, AttributeError):
            found = self.queue.database.run(partial(_read, UUID(str(result_id))))
            if found is not None:
                return result_of(found[0], self, found[1])
        raise TaskResultDoesNotExist(f"no task has the id {result_id}")

    def check(self, **_: Any) -> Iterator[Any]:
        """What `manage.py check` says about this backend."""
        checks = import_module("tasklib.contrib.django.checks")  # by name: it asks backends
        return checks.check_backend(self)

    def new_row(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewTask:
        """The row of a task that is enqueued with these arguments."""
        path = task.module_path
        payload, positional = signature_of(task).bind(path, args, kwargs)
        submission = SubmitOptions(
            priority=task.priority,
            run_at=None if task.run_after is None else aware(task.run_after),
            unique_key=task.key_for(payload) if isinstance(task, TasklibTask) else None,
            on_conflict=getattr(task, "on_conflict", "return"),
            headers={POSITIONAL_HEADER: positional} if positional else {},
        )
        queue = self.queue
        stored = plain(payload, what=path, limit=queue.config.max_payload_bytes)
        name = str(TaskName(task.queue_name, path))
        row = queue.make_row(name, stored, submission, options_of(task), queue.config.max_retries)
        if not positional and POSITIONAL_HEADER in row.headers:  # of the task that enqueues this one
            row = replace(row, headers={key: row.headers[key] for key in row.headers if key != POSITIONAL_HEADER})
        return row

    def _store(self, new: NewTask, result: Any) -> Any:
        other = None if _is_inside(self.database_alias) else _other_transaction(self.database_alias)
        if other is not None:
            transaction.on_commit(lambda: self._store(new, result), using=other)
            return result
        # A lone insert is a transaction by itself; one with a unique key may take several statements.
        alias = self.database_alias
        with nullcontext() if new.unique_key is None else transaction.atomic(using=alias):
            (task_id,) = self.queue.submit_new([new], connections[alias])
        if not task_id.created:
            return self.get_result(task_id)
        object.__setattr__(result, "enqueued_at", timezone.now())
        signals.task_enqueued.send(type(self), task_result=result)
        return result


def get_queue(backend: str = "default") -> TaskQueue:
    """The queue behind a backend: cancel, retry, pause, limits, schedules, explain, on Django's own connection.

    Examples:
        >>> result = add.enqueue(1)
        >>> get_queue().cancel(result.id).state
        <TaskState.CANCELLED: 'cancelled'>
    """
    return backend_of(backend).queue


def queue_task(task: Any) -> Submitter[..., Any]:
    """The task as one of `get_queue()`: `bind` makes a child of a workflow of it, `submit_many` stores many.

    Examples:
        >>> stored = queue_task(add).submit_many({"a": number} for number in range(3))
        >>> [result.return_value for result in run_tasks()]
        [1, 2, 3]
    """
    backend = backend_of(task.backend)
    if task.unique_key is not None:
        raise InvalidTask(f"{task.module_path}: its unique_key is for enqueue(); give queue_task() the task without it")
    name = TaskName(task.queue_name, task.module_path)
    definition = DjangoDefinition(task, name, options_of(task), partial(context_for, backend))
    run_at = None if task.run_after is None else aware(task.run_after)
    # A child would inherit from its parent how many arguments were given by position.
    options = SubmitOptions(priority=task.priority, run_at=run_at, headers={POSITIONAL_HEADER: 0})
    return Submitter(lambda: backend.queue, definition, options)


def backend_of(alias: str) -> TasklibBackend:
    """The backend of this alias in TASKS; ImproperlyConfigured if it is another's."""
    backend = task_backends[alias]
    if not isinstance(backend, TasklibBackend):
        raise ImproperlyConfigured(f"TASKS[{alias!r}] is a {type(backend).__name__}, not a TasklibBackend")
    return backend


def options_of(task: Any) -> TaskOptions:
    """The options of tasklib, also of a task that was made by another class."""
    return task.options if isinstance(task, TasklibTask) else TaskOptions(priority=task.priority)


def known_tasks(alias: str) -> dict[str, Any]:
    """The tasks defined so far for a backend, by the path of their function."""
    with _lock:
        return _known.setdefault(alias, {})


def find_tasks() -> None:
    """Import the module `tasks` of every app, as workers do; tasks defined elsewhere are found by their name."""
    autodiscover_modules("tasks")


def define(backend: TasklibBackend, name: TaskName) -> DjangoDefinition | None:
    """The definition for a name in the table; None if it is no Django task that can be imported here."""
    try:
        # As the module has it: decorators over @task may have added options.
        task = find_task(name.path)
    except (TaskResultMismatch, InvalidTask):
        task = known_tasks(backend.alias).get(name.path)
    if task is None:
        return None
    options = replace(
        options_of(task), aliases=tuple(str(TaskName(name.queue, each)) for each in options_of(task).aliases)
    )
    return DjangoDefinition(task, name, options, partial(context_for, backend))


def definitions(backend: TasklibBackend, queues: Iterable[str]) -> Iterator[DjangoDefinition]:
    """Every known task under the name it has in each of these queues, because `using()` can put any into any."""
    for path in list(known_tasks(backend.alias)):
        for queue in queues:
            found = define(backend, TaskName(queue, path))
            if found is not None:
                yield found


def read_many(ids: Iterable[str]) -> Operation[list[tuple[StoredTask, str | None]]]:
    """Tasks by their ids, each with the worker that ran it last."""
    found = list[tuple[StoredTask, str | None]]()
    for each in ids:
        one = yield from _read(UUID(each))
        if one is not None:
            found.append(one)
    return found


def _read(task_id: UUID | TaskId) -> Operation[tuple[StoredTask, str | None] | None]:
    rows = yield Statement("get_task", {"id": str(task_id)})
    return (task_from_row(rows[0]), rows[0]["finished_by"]) if rows else None


def _is_inside(alias: str) -> bool:
    """Whether the code has opened a transaction there; the one around a TestCase is not its own."""
    connection = connections[alias]
    own = [block for block in connection.atomic_blocks if not getattr(block, "_from_testcase", False)]
    return bool(own) or not (connection.in_atomic_block or connection.get_autocommit())


def _other_transaction(alias: str) -> str | None:
    """The alias of another database in whose transaction the code is, if there is one."""
    opened = (each.alias for each in connections.all(initialized_only=True) if each.alias != alias)
    return next((each for each in opened if connections[each].in_atomic_block and _is_inside(each)), None)


def _is_coroutine(task: Any) -> bool:
    from inspect import iscoroutinefunction

    return iscoroutinefunction(task.func)


_lock = threading.Lock()
_known: dict[str, dict[str, Any]] = {}
