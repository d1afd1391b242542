"""System checks: what would keep tasks from being stored or run, said before anything is tried."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router


def check_framework(app_configs: Any = None, **_: Any) -> Iterator[CheckMessage]:
    """The tasks framework itself."""
    from tasklib.contrib.django import framework

    if not framework.IS_BUILT_IN and not apps.is_installed("django_tasks"):
        yield Error(
            "the tasks framework is not installed",
            hint="Add 'django_tasks' to INSTALLED_APPS.",
            id="tasklib.E001",
        )
    if framework.IS_BUILT_IN and apps.is_installed("django_tasks"):
        yield Warning(
            "the package django-tasks is installed beside Django's own tasks framework, which tasklib uses",
            hint="Remove 'django_tasks' from INSTALLED_APPS, and import task from django.tasks.",
            id="tasklib.W001",
        )


def check_backend(backend: Any) -> Iterator[CheckMessage]:
    """One backend of TASKS."""
    from tasklib.contrib.django.backend import APP
    from tasklib.contrib.django.worker import plans

    where = f"TASKS[{backend.alias!r}]"
    if not apps.is_installed(APP):
        yield Error(
            f"{where} stores tasks in tables that no migration makes",
            hint=f"Add {APP!r} to INSTALLED_APPS and run `manage.py migrate`.",
            id="tasklib.E002",
        )
    alias = backend.database_alias
    if alias not in connections:
        yield Error(
            f"{where} names the database {alias!r}, which DATABASES does not have",
            hint=f"DATABASES has {', '.join(connections)}.",
            id="tasklib.E003",
        )
        return
    try:
        _ = backend.config
    except ImproperlyConfigured as error:
        yield Error(f"{where}: {error}", id="tasklib.E004")
        return
    if not router.allow_migrate(alias, "tasklib"):
        yield Error(
            f"{where} stores tasks in the database {alias!r}, and a router keeps their tables out of it",
            hint="Let allow_migrate() of your routers return True for the app 'tasklib' on that database.",
            id="tasklib.E005",
        )
    try:
        plans(backend)
    except ImproperlyConfigured as error:
        yield Error(str(error), id="tasklib.E006")
    yield from _check_queues(backend)


def _check_queues(backend: Any) -> Iterator[CheckMessage]:
    from tasklib.contrib.django.backend import known_tasks

    for name in sorted(backend.queues):
        if not isinstance(name, str) or not name.isprintable() or len(name) > 100:
            yield Error(
                f"TASKS[{backend.alias!r}]: {name!r} cannot be the name of a queue",
                hint="Use a text of at most 100 printable characters.",
                id="tasklib.E007",
            )
    for path, task in sorted(known_tasks(backend.alias).items()):
        if backend.queues and task.queue_name not in backend.queues:
            yield Error(
                f"{path} is defined for the queue {task.queue_name!r}, which TASKS[{backend.alias!r}] does not have",
                hint=f"Add it to QUEUES, which has {', '.join(sorted(backend.queues))}.",
                id="tasklib.E008",
            )
