"""Threads for plain functions: as many as are needed at once, reused, and replaced when one never returns."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from tasklib.core.calls.base_exceptions import carry


class NoMoreThreads(RuntimeError):
    """The call was not made, because the program is ending and no thread can start any more."""


Job = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class ThreadPool:
    """Runs blocking calls; daemon threads, because a call that never ends must not keep the process alive."""

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[Job | None]] = []
        self._lock = threading.Lock()
        self._made = 0
        self._closed = False
        self._returned: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._settling = False
        """Whether the event loop has been asked to take what has returned: one call is enough for all."""

    def run(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Start the call in a thread and give a future of its outcome; cancelling the future abandons the thread."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        (inbox or self._make()).put((call, future))
        return future

    def close(self) -> None:
        """Let idle threads end; busy ones end after their call."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _make(self) -> queue.SimpleQueue[Job | None]:
        inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._made += 1
        thread = threading.Thread(target=self._work, args=(inbox,), name=f"tasklib-task-{self._made}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if "shutdown" in str(error):
                raise NoMoreThreads(str(error)) from error
            raise
        return inbox

    def _work(self, inbox: queue.SimpleQueue[Job | None]) -> None:
        while (job := inbox.get()) is not None:
            call, future = job
            value, error = None, None
            try:
                value = call()
            except BaseException as raised:  # noqa: BLE001  it travels to whoever awaits the outcome
                error = raised
            with self._lock:
                ended = self._closed
                if not ended:
                    self._idle.append(inbox)
            self._deliver(future, value, error)
            del job, call, future, value, error
            if ended:
                return

    def _deliver(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self._returned.append((future, value, error))
        if not self._settling:
            self._settling = True
            # A loop that is closed by now has nobody waiting for the outcome.
            with contextlib.suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        """In the event loop: whatever returns from here on asks it again."""
        self._settling = False
        while self._returned:
            _set(*self._returned.popleft())


def _set(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(carry(error))
