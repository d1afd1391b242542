"""Running an operation on a connection: the part that is the same for every driver, blocking or not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Final

from tasklib.storage.statement import BEGIN, COMMIT, Operation, Row, Statement, T

Steps = Generator[Statement, Sequence[Row], T]
ROLLBACK: Final = Statement("rollback")


def steps(operation: Operation[T], translate: Callable[[Exception], Exception], *, transactions: bool = True) -> Steps[T]:
    """The statements to send for an operation, with BEGIN, COMMIT and ROLLBACK where they belong.

    Database errors thrown in here reach the operation as ours, so that it can act on them.  With `transactions`
    off, as on a connection that belongs to the caller, the operation never begins nor ends a transaction.
    """
    opened = False
    try:
        statement = next(operation)
        while True:
            rows: Sequence[Row] = ()
            if statement is BEGIN or statement is COMMIT:
                if transactions and opened is (statement is COMMIT):
                    yield statement
                    opened = statement is BEGIN
            else:
                try:
                    rows = yield statement
                except Exception as error:
                    statement = operation.throw(translate(error))
                    continue
            statement = operation.send(rows)
    except StopIteration as stop:
        if opened:
            yield COMMIT
        result: T = stop.value
        return result
    except Exception:
        if opened:
            yield ROLLBACK
        raise


def run_blocking(todo: Steps[T], execute: Callable[[Statement], Sequence[Row]]) -> T:
    """Run the steps on a blocking connection."""
    try:
        statement = next(todo)
        while True:
            try:
                rows = execute(statement)
            except Exception as error:
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
            except Exception as error:
                statement = todo.throw(error)
            else:
                statement = todo.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result


