"""Steps in transactions of their own: what the function writes and the record of the step are one commit."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, TypeAlias

from tasklib.core.calls.context import StepContext, TaskContext
from tasklib.core.calls.current import activate
from tasklib.core.time.timing import Timing
from tasklib.errors import DatabaseBusy, DatabaseUnavailable, Snooze, TaskTimeout
from tasklib.storage.database import Database, Transaction
from tasklib.worker.workflows.effects import Transact
from tasklib.worker.workflows.time_limits import TransactionLimit, limited

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
