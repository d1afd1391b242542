"""How the function of a workflow leaves its attempt without an error: it waits, or continues as new."""

from __future__ import annotations

from typing import Any


class Suspended(BaseException):
    """Unwinds the function of a workflow that waits: the attempt ends, and the function runs again when it is due.

    No `Exception`, so that `except Exception` lets it pass.
    """


class Restart(Exception):
    """Made by `task.restart(...)` and raised by the task: it continues as new, under the same id, with no steps.

    It is no error, but a signal as `Snooze` is.
    """

    def __init__(self, name: str, kwargs: Any) -> None:
        self.name = name
        self.kwargs = kwargs
        """The new arguments, checked, as plain JSON."""
        super().__init__(f"task {name!r} restarts")

    def __reduce__(self) -> tuple[Any, ...]:
        return Restart, (self.name, self.kwargs)
