"""SIGTERM and SIGINT as a request to stop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable

STOPS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Calls a function for each stop signal while the block runs; only in the main thread, where signals arrive."""

    def __init__(self, handle: Callable[[], None], *, enabled: bool) -> None:
        self._handle = handle
        self._enabled = enabled and threading.current_thread() is threading.main_thread()

    async def __aenter__(self) -> None:
        if self._enabled:
            for number in STOPS:
                asyncio.get_running_loop().add_signal_handler(number, self._handle)

    async def __aexit__(self, *_: object) -> None:
        if self._enabled:
            for number in STOPS:
                asyncio.get_running_loop().remove_signal_handler(number)
