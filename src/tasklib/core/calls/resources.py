"""What a worker fills in for a function: resources that start-up hooks made, and the places of injected values."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, NoReturn, final

from tasklib.core.redaction import Redactor
from tasklib.errors import ContextError


@dataclass(frozen=True, slots=True)
class Resource:
    """Marks a parameter, as `Annotated[T, Resource()]`, that the worker fills with what a start-up hook set.

    The resource is the attribute of the worker's state that has the parameter's name, or the name given here.

    Examples:
        >>> @queue.on_startup
        ... def open_store(state: WorkerState) -> None:
        ...     state.store = {"ada": 7}
        >>> @queue.task
        ... def read(key: str, store: Annotated[dict[str, int], Resource()] = injected()) -> int:
        ...     return store[key]
        >>> task_id = read.submit("ada")
        >>> queue.process_batch()
        1
        >>> task_id.wait()
        7
    """

    name: str | None = None


class WorkerState(SimpleNamespace):
    """What start-up hooks set for a worker's tasks: `state.db = …`; the error for an unknown name lists the others.

    Examples:
        >>> state = WorkerState(db="a connection")
        >>> state.db
        'a connection'
        >>> state.mailer
        Traceback (most recent call last):
        tasklib.errors.ContextError: no start-up hook set the resource 'mailer' (set: db); ...
    """

    _redactor: Redactor = Redactor()

    @classmethod
    def hiding(cls, redactor: Redactor) -> WorkerState:
        """The state of a worker whose tasks' log lines this redacts."""
        return cls(_redactor=redactor)

    @property
    def redactor(self) -> Redactor:
        """Removes the secrets from the lines that tasks log."""
        return self._redactor

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy, pickle and inspect ask for these
            raise AttributeError(name)
        known = ", ".join(sorted(each for each in vars(self) if not each.startswith("_"))) or "none"
        raise ContextError(
            f"no start-up hook set the resource {name!r} (set: {known}); "
            f"set it in one: @queue.on_startup, then state.{name} = ..."
        )


@final
class Injected:
    """What `injected()` gives: the place of a value that the worker fills in.

    A plain call of the function finds it there, and gets an error that says so as soon as it is used.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # copy, pickle and inspect ask for these
            raise AttributeError(name)
        raise ContextError(
            f"the worker fills in this parameter, and nobody did here: .{name} has no answer; "
            "submit the task, or give the parameter a value in a plain call"
        )

    def __repr__(self) -> str:
        return "injected()"


def injected() -> Any:
    """The default of a parameter that the worker fills in, so that type checkers let callers leave it out.

    Examples:
        >>> @queue.task
        ... def import_rows(path: str, ctx: TaskContext = injected()) -> int:
        ...     return ctx.attempt
        >>> task_id = import_rows.submit("rows.csv")
    """
    return _INJECTED


_INJECTED: Final = Injected()
