"""SIGTERM and SIGINT as a request to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

STOPS = (signal.SIGTERM, signal.SIGINT)

_replaced: dict[signal.Signals, Any] = {}
"""The handlers that a worker in this process has replaced."""


def listen_to_stops(handle: Callable[[], None]) -> None:
    """Call a function of the running event loop for each stop signal, in this process and not in its forks."""
    for number in STOPS:
        _replaced[number] = signal.getsignal(number)
        asyncio.get_running_loop().add_signal_handler(number, handle)


def ignore_stops() -> None:
    """Put back what was there before."""
    for number, handler in list(_replaced.items()):
        del _replaced[number]
        asyncio.get_running_loop().remove_signal_handler(number)
        if handler is not None:  # None: it was not set from Python, and cannot be set again from here
            signal.signal(number, handler)


class _Forking:
    """A forked child shares the event loop's wake-up channel: a signal to it would not end it, but stop the parent, as
    when multiprocessing ends its pool.  So it gets the earlier handlers back, before any signal reaches it."""

    def __init__(self) -> None:
        self._masks: dict[int, set[int]] = {}

    def before(self) -> None:
        if _replaced:
            self._masks[threading.get_ident()] = set(signal.pthread_sigmask(signal.SIG_BLOCK, STOPS))

    def after_in_parent(self) -> None:
        mask = self._masks.pop(threading.get_ident(), None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def after_in_child(self) -> None:
        if _replaced:
            with suppress(ValueError, OSError):
                signal.set_wakeup_fd(-1)
                for number, handler in _replaced.items():
                    signal.signal(number, signal.SIG_DFL if handler is None else handler)
            _replaced.clear()
        self.after_in_parent()


_forking = _Forking()
os.register_at_fork(
    before=_forking.before, after_in_parent=_forking.after_in_parent, after_in_child=_forking.after_in_child
)


class Stoppable(Protocol):
    """What can be asked to stop; asked a second time, to stop now."""

    def stop(self) -> None:
        """Stop soon."""


class StopSignals:
    """Stops a worker at each stop signal while the block runs; only in the main thread, where signals arrive."""

    def __init__(self, worker: Stoppable, *, enabled: bool) -> None:
        self._worker = worker
        self._enabled = enabled and threading.current_thread() is threading.main_thread()

    async def __aenter__(self) -> None:
        if self._enabled:
            listen_to_stops(self._worker.stop)

    async def __aexit__(self, *_: object) -> None:
        if self._enabled:
            ignore_stops()


def is_handled() -> bool:
    """Whether the program around this worker handles SIGTERM itself, as a web server does."""
    return signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
