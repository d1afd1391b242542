"""What tasklib adds to a Django task: retries, timeout, isolation, limits and unique keys.

@task(max_retries=5, timeout_seconds=30)                 # Django 6.1, django-tasks 0.12
def send(to): ...

@with_options(max_retries=5, timeout_seconds=30)         # every version, and known to type checkers
@task
def send(to): ...

with_options(send, unique_key=f"welcome-{user.pk}").enqueue(user.pk)
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar, Unpack, overload

from tasklib.contrib.django.framework import InvalidTask, Task
from tasklib.core.task import OnConflict
from tasklib.definition import TaskKeywords, TaskOptions, is_key
from tasklib.errors import ConfigurationError

T = TypeVar("T")

_NAMED = re.compile(r"\{(\w+)\}")


class OptionKeywords(TaskKeywords, total=False):
    """The options of a task, and those of its submissions."""

    unique_key: str | None
    on_conflict: OnConflict


class _Options:
    """What a Django task with tasklib's options can say about them."""

    __slots__ = ()
    module_path: str
    priority: int
    unique_key: str | None

    @property
    def options(self) -> TaskOptions:
        """What a worker of tasklib needs to know; InvalidTask for an option that cannot work."""
        given = {name: getattr(self, name) for name in TASK_OPTIONS}
        try:
            return TaskOptions.for_task(self.module_path, priority=self.priority, **given)
        except ConfigurationError as error:
            raise InvalidTask(str(error)) from error

    def key_for(self, arguments: Mapping[str, Any]) -> str | None:
        """The unique key of a task with these arguments; a name in braces is one of them: `invoice-{order_id}`."""
        if self.unique_key is None:
            return None
        missing = [name for name in _NAMED.findall(self.unique_key) if name not in arguments]
        if missing:
            raise InvalidTask(
                f"{self.module_path}: its unique_key {self.unique_key!r} names no argument {missing[0]!r}"
            )
        made = _NAMED.sub(lambda found: str(arguments[found[1]]), self.unique_key)
        if not is_key(made):
            raise InvalidTask(f"{self.module_path}: its unique key is empty or too long: {made[:80]!r}")
        return made


def _fields() -> Iterator[tuple[str, Any, Any]]:
    """The options as fields of a Django task, with the same defaults; the priority is Django's own."""
    for each in dataclasses.fields(TaskOptions):
        if each.name != "priority":
            known = each.default is not dataclasses.MISSING
            default = {"default": each.default} if known else {"default_factory": each.default_factory}
            yield each.name, Any, dataclasses.field(**default)
    yield "unique_key", Any, dataclasses.field(default=None)
    yield "on_conflict", Any, dataclasses.field(default="return")


TasklibTask: Any = dataclasses.make_dataclass(
    "TasklibTask",
    list(_fields()),
    bases=(_Options, Task),
    namespace={"__module__": __name__, "__doc__": "A Django task with tasklib's options."},
    frozen=True,
    slots=True,
    kw_only=True,
)
TASK_OPTIONS: Final = tuple(each.name for each in dataclasses.fields(TaskOptions) if each.name != "priority")
_OPTIONS: Final = (*TASK_OPTIONS, "unique_key", "on_conflict")


@overload
def with_options(task: T, /, **options: Unpack[OptionKeywords]) -> T: ...
@overload
def with_options(**options: Unpack[OptionKeywords]) -> Callable[[T], T]: ...
def with_options(task: Any = None, /, **options: Any) -> Any:
    """The task with tasklib's options, as a decorator over `@task` or for one call; its type stays the same.

    Examples:
        >>> @with_options(max_retries=5, timeout_seconds=30)
        ... @task
        ... def charge(order_id): ...
        >>> charge.max_retries
        5
        >>> once = with_options(add, unique_key="add-{a}")
        >>> once.enqueue(7).id == once.enqueue(7).id
        True
    """
    if task is None:
        return lambda decorated: with_options(decorated, **options)
    if not isinstance(task, Task):
        raise InvalidTask(f"{task!r} is no task: with_options() goes over @task")
    if "priority" in options:
        raise InvalidTask("the priority belongs to Django's own: @task(priority=…) or .using(priority=…)")
    unknown = options.keys() - set(_OPTIONS)
    if unknown:
        raise InvalidTask(f"tasks have no option {', '.join(sorted(unknown))}; they have {', '.join(_OPTIONS)}")
    if not isinstance(task, TasklibTask):
        kind = type(task.get_backend()).__name__
        warnings.warn(
            f"{task.module_path}: a {kind} knows no options of tasklib; left out", RuntimeWarning, stacklevel=2
        )
        return task
    return dataclasses.replace(task, **options)
