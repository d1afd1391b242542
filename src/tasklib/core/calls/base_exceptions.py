"""Exceptions that are not `Exception`s: where they come from, and how to pass them through asyncio unharmed.

A task that lets one escape has failed like any other: `sys.exit()` ends that task alone, and so does a CancelledError
that the worker did not ask for.  Only Ctrl-C ends the program: Python raises it in whatever code is running.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

_STOPPED_BY_ASYNCIO: Final = (StopIteration, asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit)
"""What a future interprets, or what ends the event loop when an asyncio task lets it escape."""


class Carried(Exception):
    """Carries an exception through a future or an asyncio task that would interpret it."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def carry(error: BaseException) -> BaseException:
    """The exception, wrapped if a future would interpret it."""
    return Carried(error) if isinstance(error, _STOPPED_BY_ASYNCIO) else error


def uncarried(error: BaseException) -> BaseException:
    """The exception that the function raised, unwrapped."""
    return error.error if isinstance(error, Carried) else error


async def carrying(work: Awaitable[T]) -> T:
    """The awaitable's result, for an asyncio task of its own: what it raises ends neither that task nor the loop."""
    try:
        return await work
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise  # Somebody has asked this task to end.
        raise Carried(error) from None
    except (KeyboardInterrupt, SystemExit, GeneratorExit) as error:
        if is_interrupt(error) or isinstance(error, GeneratorExit):
            raise
        raise Carried(error) from None


def is_interrupt(error: BaseException) -> bool:
    """Whether this is Ctrl-C, as far as can be determined: in another thread, or while our own handler has the signal,
    a KeyboardInterrupt can only come from the code that was running."""
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        return True
    code = _code_of(handler)
    return code is not None and any(frame.f_code is code for frame, _ in traceback.walk_tb(error.__traceback__))


def is_in_signal_handler() -> bool:
    """Whether this code was called by a signal handler, which Python may call in the middle of any other code."""
    if threading.current_thread() is not threading.main_thread():
        return False
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    return any(frame.f_code in handlers for frame, _ in traceback.walk_stack(None))


def _code_of(handler: Callable[..., Any] | int | signal.Handlers | None) -> object:
    """The code of a function, also of one with arguments filled in, as asyncio's own handler is."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return getattr(handler, "__code__", None)
