"""Django's tasks framework: its own from 6.0 on, the package `django-tasks` before.

Nothing of it is typed for us: the two differ, and Django ships no types.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import django
from django.core.exceptions import ImproperlyConfigured

IS_BUILT_IN = django.VERSION >= (6, 0)
MODULE = "django.tasks" if IS_BUILT_IN else "django_tasks"


def _load() -> Any:
    try:
        return import_module(MODULE)
    except ModuleNotFoundError as error:
        if error.name != MODULE:
            raise
        raise ImproperlyConfigured(
            f"Django {django.get_version()} has no tasks framework of its own: pip install django-tasks, and add "
            "'django_tasks' to INSTALLED_APPS"
        ) from error


_tasks = _load()
_base: Any = import_module(f"{MODULE}.base")
_exceptions: Any = import_module(f"{MODULE}.exceptions")

task_backends: Any = _tasks.task_backends
signals: Any = import_module(f"{MODULE}.signals")
BaseTaskBackend: Any = import_module(f"{MODULE}.backends.base").BaseTaskBackend
Task: Any = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
TaskResultStatus: Any = _base.TaskResultStatus
InvalidTask: Any = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
TaskResultMismatch: Any = _exceptions.TaskResultMismatch
normalize_json: Any = import_module("django.utils.json" if IS_BUILT_IN else f"{MODULE}.utils").normalize_json
