"""SIGTERM and SIGINT as a request to stop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from typing import Any

STOPS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Calls a function for each stop signal while the block runs; only in the main thread, where signals arrive."""

    def __init__(self, handle: Callable[[], None], *, enabled: bool) -> None:
        self._handle = handle
        self._enabled = enabled and threading.current_thread() is threading.main_thread()
        self._before: dict[signal.Signals, Any] = {}

    async def __aenter__(self) -> None:
        if self._enabled:
            for number in STOPS:
                self._before[number] = signal.getsignal(number)
                asyncio.get_running_loop().add_signal_handler(number, self._handle)

    async def __aexit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            asyncio.get_running_loop().remove_signal_handler(number)
            if handler is not None:  # None: it was not set from Python, and cannot be set again from here
                signal.signal(number, handler)


def is_handled() -> bool:
    """Whether the program around this worker handles SIGTERM itself, as a web server does."""
    return signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
