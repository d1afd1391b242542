"""Steps in transactions of their own: what the function writes and the record of the step are one commit, in time."""

from __future__ import annotations

import random
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import Any, Final, TypeAlias

from tasklib.core.calls.context import StepContext, TaskContext
from tasklib.core.calls.current import activate
from tasklib.core.time.timing import Timing
from tasklib.errors import DatabaseBusy, DatabaseUnavailable, Snooze, TaskTimeout
from tasklib.storage.database import Database, Transaction
from tasklib.worker.workflows.effects import Transact
from tasklib.worker.workflows.step_threads import start_thread

POSTPONE_SECONDS: Final = 1.0
"""About how long an attempt is postponed whose transaction could not begin."""

Around: TypeAlias = Callable[[StepContext], AbstractContextManager[Any]]
"""Context managers around each step."""
Running: TypeAlias = Callable[[Transaction], AbstractContextManager[Any]]
"""What is around the function while it runs in an open transaction."""


def transact_blocking(
    database: Database, context: StepContext, effect: Transact, around: Around, timing: Timing
) -> None:
    """Run the step in a transaction whose last statement records it; nothing is left of one that takes too long."""
    seconds = effect.call.timeout_seconds
    if seconds is None:
        _transact(database, context, effect, around, lambda transaction: nullcontext())
        return
    limit = TransactionLimit(seconds, timing)
    limit.run(lambda: _transact(database, context, effect, around, limit.running))


def _transact(database: Database, context: StepContext, effect: Transact, around: Around, running: Running) -> None:
    begun = False
    try:
        with database.transaction() as transaction:
            begun = True
            with running(transaction), joined(context, database, transaction), around(context):
                value = effect.call.function(*effect.call.args, **effect.call.kwargs)
            transaction.run(lambda: effect.record(value))
    except (DatabaseBusy, DatabaseUnavailable) as error:
        if begun:
            raise
        raise not_begun(error) from error


async def transact_awaiting(
    database: Database, context: StepContext, effect: Transact, around: Around, timing: Timing
) -> None:
    """The same for a coroutine function; one that blocks the event loop past its timeout, or goes on although it was
    cancelled, is undone when it ends."""
    begun, seconds = False, effect.call.timeout_seconds
    try:
        async with database.atransaction() as transaction:
            begun, began = True, timing.monotonic()
            async with limited(timing, seconds) as limit:
                with joined(context, database, transaction), around(context):
                    value = await effect.call.function(*effect.call.args, **effect.call.kwargs)
            if seconds is not None and (limit.expired() or timing.monotonic() - began >= seconds):
                raise TaskTimeout(seconds)
            await transaction.arun(lambda: effect.record(value))
    except (DatabaseBusy, DatabaseUnavailable) as error:
        if begun:
            raise
        raise not_begun(error) from error


def not_begun(error: Exception) -> Snooze:
    """Postpones an attempt whose transaction could not begin; no attempt is spent."""
    return Snooze(delay=POSTPONE_SECONDS * random.uniform(0.5, 1.5), reason=f"no transaction could begin: {error}")


@contextmanager
def joined(context: TaskContext, database: Database, transaction: Transaction) -> Generator[None]:
    """Let the function use the transaction inside the block; code that outlives the block no longer can."""
    context.join(database, transaction.connection)
    try:
        with activate(context):
            yield
    finally:
        context.join(None, None)


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
