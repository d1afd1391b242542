"""Threads for calls that block: steps that are plain functions, of a coroutine or with a timeout, and requests."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from tasklib.errors import TaskTimeout

T = TypeVar("T")


def start_in_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    """Make the call in a new thread; the future of this event loop gets what it returns or raises."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def deliver(value: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(value)
        elif isinstance(error, StopIteration):
            done.set_exception(RuntimeError("a step raised StopIteration"))
        else:
            done.set_exception(error)

    def notify(value: Any, error: BaseException | None) -> None:
        with suppress(RuntimeError):  # The loop is closed by now, and nothing waits for it.
            loop.call_soon_threadsafe(deliver, value, error)

    start_thread(call, notify)
    return done


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
