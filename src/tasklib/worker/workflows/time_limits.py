"""Limits on how long a step may run: in a coroutine, and in a thread with a transaction, which then is undone."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from tasklib.core.time.timing import Timing
from tasklib.errors import TaskTimeout
from tasklib.storage.database import Transaction
from tasklib.worker.workflows.step_threads import start_thread


@asynccontextmanager
async def limited(timing: Timing, seconds: float | None) -> AsyncGenerator[Any]:
    """Cancel the block after so many seconds, and raise TaskTimeout; gives what knows whether it has come to that."""
    limit: Any = timing.timeout(seconds)
    try:
        async with limit:
            yield limit
    except TimeoutError:
        if seconds is not None and limit.expired():
            raise TaskTimeout(seconds) from None
        raise


class TransactionLimit:
    """Decides once how a function ends that runs in a transaction, in a thread of its own: in time, or never.

    Only the thread itself commits, and only if its function has ended in time; a timeout that comes later is ignored.
    At the timeout the transaction is undone, whatever the function does then, and the thread is abandoned.
    """

    def __init__(self, seconds: float, timing: Timing) -> None:
        self._seconds = seconds
        self._timing = timing
        self._changed = threading.Condition()
        self._transaction: Transaction | None = None
        """Set while the function runs."""
        self._has_begun = self._is_over = False
        self._outcome: BaseException | bool | None = None

    def run(self, call: Callable[[], None]) -> None:
        """Make the call in a thread; it enters `running` when its transaction is open."""
        start_thread(call, self._notify)
        with self._changed:
            self._changed.wait_for(lambda: self._has_begun or self._outcome is not None)
            if not self._changed.wait_for(self._has_ended, self._seconds):
                self._is_over = True
                assert self._transaction is not None
                # The thread cannot leave `running` before this is done, and so not return the connection.
                self._transaction.abort()
                raise TaskTimeout(self._seconds)
            self._changed.wait_for(lambda: self._outcome is not None)
            if isinstance(self._outcome, BaseException):
                raise self._outcome

    @contextmanager
    def running(self, transaction: Transaction) -> Generator[None]:
        """The time that is limited; TaskTimeout at its end if it was too long."""
        began = self._timing.monotonic()
        with self._changed:
            self._transaction, self._has_begun = transaction, True
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._transaction = None
                self._changed.notify_all()
                if self._is_over or self._timing.monotonic() - began >= self._seconds:
                    raise TaskTimeout(self._seconds)

    def _has_ended(self) -> bool:
        return self._transaction is None

    def _notify(self, value: Any, error: BaseException | None) -> None:
        with self._changed:
            self._outcome = True if error is None else error
            self._changed.notify_all()
