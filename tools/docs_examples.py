"""The examples in docstrings: what each finds already there, and which public names have to have one."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any, Final

import tasklib
from tasklib.fluent import Fluent, TaskType
from tasklib.submission import TaskFunction

BEFORE: Final = """\
import asyncio, sqlite3, threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated

from tasklib import *

queue = TaskQueue("sqlite:///:memory:")


@queue.task
def add(a: int, b: int = 1) -> int:
    return a + b


@queue.task(max_retries=0)
def divide(a: int, b: int) -> float:
    return a / b
"""
"""What every example begins with; the API reference shows it once, at the top of each page."""

FOR_OTHER_PARTS: Final = frozenset(
    [
        "submit_new",
        "asubmit_new",
        "submit_one",
        "asubmit_one",
        "fire_schedules",
        "afire_schedules",
        "new_task",
        "new_by_name",
        "make_row",
        "is_joined",
        "scheduled_task",
        "clock",
        "database",
        "bind_row",
        "made_by",
        "of_batch",
        "extend",
        "hiding",
        "redactor",
        "reported",
        "hide",
        "keep_line",
        "join",
        "transaction_of",
        "as_children",
        "require_tasks",
        "ask_to_end",
        "instrumentation_dependencies",
        "setup_once",
        "over",
        "unique_key",
        "fields",
        "first_run",
        "upcoming",
        "due",
        "following",
    ]
)
"""Public among tasklib's own modules, and left out of the API reference."""

NOT_IMPORTED: Final = (TaskFunction, Fluent, TaskType)
"""Classes whose objects users have, without importing the class: what `@queue.task` gives, `tq` and `tq(name)`."""

BESIDE: Final = [
    "testing.isolated",
    "testing.TestTasks",
    "contrib.alembic.include_name",
    "contrib.alembic.upgrade",
    "contrib.flask.init_app",
    "contrib.litestar.mount",
    "contrib.loguru.bind",
    "contrib.opentelemetry.TasklibInstrumentor",
    "contrib.sentry.TasklibIntegration",
    "contrib.sqlalchemy.tables",
    "contrib.sqlalchemy.Tables",
    "contrib.structlog.bind",
]
"""What users import from other modules of tasklib; Django's part needs a project around it, and has a page."""


def documented() -> Iterator[tuple[str, Any]]:
    """Every public name with its object: functions, classes, and their methods and properties, each once."""
    named = {name: getattr(tasklib, name) for name in tasklib.__all__}
    named |= {each.__name__: each for each in NOT_IMPORTED}
    named |= {path: _imported(path) for path in BESIDE}
    for name, value in named.items():
        if callable(value):
            yield name, value
        if inspect.isclass(value):
            yield from _members(name, value)


def _imported(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"tasklib.{module}"), name)


def _members(name: str, owner: type[Any]) -> Iterator[tuple[str, Any]]:
    for member in dir(owner):
        value = inspect.getattr_static(owner, member)
        if member.startswith("_") or member in FOR_OTHER_PARTS:
            continue
        if isinstance(value, property):
            yield f"{name}.{member}", value
        elif inspect.isfunction(found := getattr(owner, member)) and found.__module__.startswith("tasklib"):
            yield f"{name}.{member}", found
