"""Django: a backend for its tasks framework, with its worker, migrations, admin, checks and test helper.

    INSTALLED_APPS = [..., "tasklib.contrib.django"]
    TASKS = {"default": {"BACKEND": "tasklib.contrib.django.TasklibBackend"}}

    python manage.py migrate
    python manage.py tasklib_worker

Django 5.2 with the package `django-tasks`, 6.0 and 6.1; see docs/integrations/django.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasklib.contrib.late import public_names

if TYPE_CHECKING:
    from tasklib.contrib.django.backend import TasklibBackend as TasklibBackend
    from tasklib.contrib.django.backend import get_queue as get_queue
    from tasklib.contrib.django.backend import queue_task as queue_task
    from tasklib.contrib.django.options import with_options as with_options
    from tasklib.contrib.django.results import TaskCancelled as TaskCancelled

__all__ = ["TaskCancelled", "TasklibBackend", "get_queue", "queue_task", "with_options"]

# Django imports this package before its settings are ready.
__getattr__, __dir__ = public_names(
    __name__,
    {
        "TaskCancelled": "results",
        "TasklibBackend": "backend",
        "get_queue": "backend",
        "queue_task": "backend",
        "with_options": "options",
    },
    "django",
    "tasklib-queue[django]",
)
