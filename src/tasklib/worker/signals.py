"""SIGTERM and SIGINT as a request to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

STOPS = (signal.SIGTERM, signal.SIGINT)

_replaced: dict[signal.Signals, Any] = {}
"""The handlers that a worker in this process has replaced."""
_masks: dict[int, set[int]] = {}
"""The signals that threads had blocked before they forked."""


def listen_to_stops(handle: Callable[[], None]) -> None:
    """Call a function of the running event loop for each stop signal, in this process and not in its forks."""
    for number in STOPS:
        _replaced[number] = signal.getsignal(number)
        asyncio.get_running_loop().add_signal_handler(number, handle)


def ignore_stops() -> None:
    """Restore the earlier handlers."""
    for number, handler in list(_replaced.items()):
        del _replaced[number]
        asyncio.get_running_loop().remove_signal_handler(number)
        if handler is not None:  # None: it was not set from Python, and cannot be set again from here
            signal.signal(number, handler)


def _before_fork() -> None:
    """Give a forked child the earlier signal handlers before any signal can reach it.  It shares the event loop's
    wake-up channel: a signal to it, as when multiprocessing ends its pool, would otherwise stop the parent."""
    if _replaced:
        _masks[threading.get_ident()] = set(signal.pthread_sigmask(signal.SIG_BLOCK, STOPS))


def _after_fork() -> None:
    mask = _masks.pop(threading.get_ident(), None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_fork_in_child() -> None:
    if _replaced:
        with suppress(ValueError, OSError):
            signal.set_wakeup_fd(-1)
            for number, handler in _replaced.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
        _replaced.clear()
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


class Stoppable(Protocol):
    """Something that can be asked to stop; the second call means now."""

    def stop(self) -> None:
        """Stop soon."""


@asynccontextmanager
async def stop_at_signals(worker: Stoppable, *, enabled: bool) -> AsyncGenerator[None]:
    """Stop the worker at each stop signal while the block runs; only in the main thread, where signals arrive."""
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield
        return
    listen_to_stops(worker.stop)
    try:
        yield
    finally:
        ignore_stops()


def is_handled() -> bool:
    """Whether the program around this worker handles SIGTERM itself, as a web server does."""
    return signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
