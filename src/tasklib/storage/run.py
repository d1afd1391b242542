"""Running an operation on a connection: the part that is the same for every driver, blocking or not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from tasklib.core.time.clock import Clock
from tasklib.storage.statement import BEGIN, COMMIT, MEMORY, ROLLBACK, Operation, Row, Statement, T

Steps = Generator[Statement, Sequence[Row], T]


def steps(
    operation: Operation[T],
    translate: Callable[[Exception], Exception],
    clock: Clock,
    memory: dict[str, Any] | None = None,
) -> Steps[T]:
    """The statements to send for an operation, with BEGIN, COMMIT and ROLLBACK where they belong.

    The operation runs up to its first statement at once, so that wrong arguments are refused before a connection is
    taken.  Every statement gets the same `now` from the clock, inside a transaction that of its beginning: it may have
    waited long for others.  None stands for the time when the database runs it.
    The `memory` is that of all tries of one call; None where there is one try.
    """
    now = clock.now()
    try:
        first = next(operation)
    except StopIteration as stop:
        return _no_steps(stop.value)
    return _steps(operation, first, translate, clock, now, {} if memory is None else memory)


def _no_steps(result: T) -> Steps[T]:
    yield from ()
    return result


def _steps(
    operation: Operation[T],
    statement: Statement,
    translate: Callable[[Exception], Exception],
    clock: Clock,
    now: datetime | None,
    memory: dict[str, Any],
) -> Steps[T]:
    """Database errors thrown in here reach the operation as ours, so that it can act on them."""
    opened = False
    try:
        while True:
            rows: Sequence[Row] = ()
            try:
                if statement is MEMORY:
                    rows = (memory,)
                elif statement is not BEGIN and statement is not COMMIT and statement is not ROLLBACK:
                    rows = yield Statement(statement.name, {**statement.params, "now": now})
                elif opened is not (statement is BEGIN):
                    yield statement
                    opened = statement is BEGIN
                    now = clock.now()
            except Exception as error:  # noqa: BLE001 the operation decides what it means
                statement = operation.throw(translate(error))
            else:
                statement = operation.send(rows)
    except StopIteration as stop:
        if opened:
            yield from _commit(translate)
        result: T = stop.value
        return result
    except Exception:
        if opened:
            # The first error is the one to raise; a connection that cannot even roll back is discarded.
            with suppress(Exception):
                yield ROLLBACK
        raise


def _commit(translate: Callable[[Exception], Exception]) -> Steps[None]:
    try:
        yield COMMIT
    except Exception as error:
        translated = translate(error)
        if translated is error:
            raise
        raise translated from error


def run_blocking(todo: Steps[T], execute: Callable[[Statement], Sequence[Row]]) -> T:
    """Run the steps on a blocking connection."""
    try:
        statement = next(todo)
        while True:
            try:
                rows = execute(statement)
            except Exception as error:  # noqa: BLE001 the steps decide what it means
                statement = todo.throw(error)
            else:
                statement = todo.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def run_awaiting(todo: Steps[T], execute: Callable[[Statement], Awaitable[Sequence[Row]]]) -> T:
    """Run the steps on an asynchronous connection."""
    try:
        statement = next(todo)
        while True:
            try:
                rows = await execute(statement)
            except Exception as error:  # noqa: BLE001 the steps decide what it means
                statement = todo.throw(error)
            else:
                statement = todo.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result
