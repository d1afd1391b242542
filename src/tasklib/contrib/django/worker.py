"""A worker's queue for a backend: its own connections, every task of the project, and what surrounds their attempts.

In a child process of a worker this module sets up Django when it is imported, before the module of any task is.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import django
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from tasklib.core.calls.import_guard import is_child
from tasklib.core.calls.own_tasks import own_task
from tasklib.core.config import Config
from tasklib.core.schedule import Plan
from tasklib.errors import ConfigurationError, TaskLibError
from tasklib.queue import TaskQueue
from tasklib.storage import connect
from tasklib.storage.operations.tasks import waiting_names

BACKEND_VARIABLE: Final = "TASKLIB_DJANGO_BACKEND"
QUEUES_VARIABLE: Final = "TASKLIB_DJANGO_QUEUES"
"""The environment variables by which a worker passes its backend and queues to its child processes."""
LOOK_SECONDS: Final = 5.0
"""How often a worker looks for tasks whose modules it has not imported."""

log = logging.getLogger("tasklib.django")

queue: TaskQueue | None = None
"""What this process works on; child processes find their queue here."""


def open_queue(backend_alias: str, queues: Sequence[str] = ()) -> TaskQueue:
    """The queue that a worker of this process works on: tasks of these queues of the backend, or of all."""
    global queue
    from tasklib.contrib.django.backend import backend_of, definitions, find_tasks
    from tasklib.contrib.django.database import for_worker
    from tasklib.contrib.django.middleware import AttemptMiddleware, EndSignals

    backend = backend_of(backend_alias)
    config = backend.config
    _refuse_memory(config, backend.database_alias)
    find_tasks()
    made = TaskQueue(config, store=for_worker(connect(config), backend.database_alias))
    for definition in definitions(backend, queues or sorted(backend.queues) or ["default"]):
        made.registry.add(definition)
    made.add_middleware(AttemptMiddleware(backend))
    ends = EndSignals(backend)
    made.on_end(ends)
    made.on_shutdown(ends.close)
    made.declared_schedules = list(plans(backend).values())
    os.environ[BACKEND_VARIABLE], os.environ[QUEUES_VARIABLE] = backend_alias, "\n".join(queues)
    if not is_child():
        UnknownNames(made, backend, queues).watch()
    queue = made
    return made


class UnknownNames:
    """Finds tasks that wait under a name this process has not imported: a task may be defined in any module."""

    def __init__(self, queue: TaskQueue, backend: Any, queues: Sequence[str]) -> None:
        self._queue = queue
        self._backend = backend
        self._queues = queues
        self._refused: set[str] = set()
        self._looking: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Look before the worker begins, and again and again while it works."""
        self._queue.on_startup(self._begin)
        self._queue.on_shutdown(self._end)

    async def look(self) -> None:
        """Import what waits and is not known."""
        from tasklib.contrib.django.backend import define
        from tasklib.contrib.django.calls import TaskName

        names = await self._queue.database.arun(lambda: waiting_names())
        for name in map(TaskName.parse, names):
            if str(name) in self._queue.registry or str(name) in self._refused or not self._serves(name.queue):
                continue
            found = await asyncio.to_thread(define, self._backend, name)
            if found is None:
                self._refused.add(str(name))
                log.warning("tasks named %s wait, and there is no such task in this project", name)
            else:
                self._queue.registry.add(found)

    def _serves(self, name: str) -> bool:
        if self._queues:
            return name in self._queues
        return not self._backend.queues or name in self._backend.queues

    async def _begin(self) -> None:
        await self._look_or_log()
        self._looking = own_task(self._look_often())

    async def _end(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def _look_often(self) -> None:
        while True:
            await self._queue.timing.sleep(LOOK_SECONDS)
            await self._look_or_log()

    async def _look_or_log(self) -> None:
        try:
            await self.look()
        except TaskLibError as error:
            log.warning("cannot look for unknown tasks: %s", error)


def plans(backend: Any) -> dict[str, Plan]:
    """The schedules in the backend's OPTIONS, by name; ImproperlyConfigured for one that cannot run."""
    declared = backend.options.get("schedules", {})
    if not isinstance(declared, Mapping):
        raise ImproperlyConfigured(f"TASKS[{backend.alias!r}]: schedules is a dict by name, got {declared!r}")
    return {name: _plan(backend, name, given) for name, given in declared.items()}


def _plan(backend: Any, name: str, given: Any) -> Plan:
    from tasklib.contrib.django.calls import POSITIONAL_HEADER, TaskName, signature_of
    from tasklib.contrib.django.framework import TaskResultMismatch
    from tasklib.contrib.django.results import find_task

    where = f"TASKS[{backend.alias!r}]: schedule {name!r}"
    if not isinstance(given, Mapping) or "task" not in given:
        raise ImproperlyConfigured(f"{where} is a dict with a task, and a cron expression or every=seconds")
    rest: dict[str, Any] = dict(given)
    try:
        task = find_task(rest.pop("task"))
        arguments = signature_of(task).bind(task.module_path, rest.pop("args", ()), rest.pop("kwargs", {}))
        queue_name = rest.pop("queue_name", task.queue_name)
        if backend.queues and queue_name not in backend.queues:
            raise ImproperlyConfigured(f"{where}: there is no queue {queue_name!r}; {_known(backend)}")
        options = {"max_retries": backend.config.max_retries, "priority": rest.pop("priority", task.priority)}
        if getattr(task, "max_retries", None) is not None:
            options["max_retries"] = task.max_retries
        headers = {"headers": {POSITIONAL_HEADER: arguments.positional}} if arguments.positional else {}
        return Plan(
            name=name,
            task=str(TaskName(queue_name, task.module_path)),
            kwargs=arguments.payload,
            options={**options, **headers},
            **{"tz": settings.TIME_ZONE, **rest},
        )
    except (ConfigurationError, TaskResultMismatch, TypeError) as error:
        raise ImproperlyConfigured(f"{where}: {error}") from error


def _known(backend: Any) -> str:
    return f"QUEUES has {', '.join(sorted(backend.queues))}"


def _refuse_memory(config: Config, alias: str) -> None:
    if config.database_url == "sqlite:///:memory:":
        raise ImproperlyConfigured(
            f"the database {alias!r} is in this process's memory, where no worker can reach it; use a file or "
            "PostgreSQL, and in tests tasklib.contrib.django.testing.run_tasks()"
        )


if is_child() and not apps.ready:
    settings.LOGGING_CONFIG = None  # what is logged here goes to the worker, whose handlers take it
    django.setup()
if is_child():
    open_queue(os.environ[BACKEND_VARIABLE], os.environ[QUEUES_VARIABLE].splitlines())
