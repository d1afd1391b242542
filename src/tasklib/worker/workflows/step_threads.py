"""Threads for steps that are plain functions: of a coroutine, or with a timeout."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

from tasklib.errors import TaskTimeout


def start_thread(call: Callable[[], Any], notify: Callable[[Any, BaseException | None], None]) -> None:
    """Make the call in a new daemon thread, with a copy of the context variables."""
    variables = contextvars.copy_context()

    def work() -> None:
        try:
            value = variables.run(call)
        except BaseException as error:  # noqa: BLE001  whoever waits gets it
            notify(None, error)
        else:
            notify(value, None)

    threading.Thread(target=work, name="tasklib-step", daemon=True).start()


def call_within(seconds: float, call: Callable[[], Any]) -> Any:
    """The call's result; TaskTimeout after this many seconds, when the thread is abandoned."""
    ended = threading.Event()
    outcome: list[Any] = [None, None]

    def notify(value: Any, error: BaseException | None) -> None:
        outcome[:] = value, error
        ended.set()

    start_thread(call, notify)
    if not ended.wait(seconds):
        raise TaskTimeout(seconds)
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]
