"""A transaction lent to the user's code, which can neither end it nor make other writers wait for long.

SQLite has one writer.  A loan that lasts for half of the time that others wait for the lock is undone from outside,
even while the code that has it is busy with something else; what that code sends later is refused.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from tasklib.errors import ContextError, DatabaseBusy
from tasklib.storage.sqlite.across_forks import Connection

SCRIPT: Final = "executescript(), which begins with a COMMIT,"

T = TypeVar("T")

_ENDS: Final = re.compile(r"\s*(BEGIN|COMMIT|END|ROLLBACK(?!\s+(TRANSACTION\s+)?TO\b))\b", re.IGNORECASE)
_INTERRUPT_SECONDS: Final = 0.01


class Loan:
    """The time during which the user's code has a connection with an open transaction; it ends once."""

    def __init__(self, connection: LentConnection, limit: float, undo: Callable[[], None]) -> None:
        self._connection = connection
        self._limit = limit
        self._undo = undo
        # Held during each of the user's statements: undoing during one would let its rest run outside the transaction.
        self._lock = threading.RLock()
        self._overdue = self._undoing = self._returned = False
        self._timer = threading.Timer(limit, self.expire)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        self._connection.loan = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the connection back; without an error there must still be a transaction to commit."""
        self._timer.cancel()
        with self._lock:
            self._returned = True
            self._connection.loan = None
            if error is None:
                self._check_open()

    def run(self, text: str, call: Callable[[], T]) -> T:
        """Run a statement of the user's, or of ours on their behalf, if it is one of this transaction."""
        with self._lock:
            if self._undoing:
                return call()
            self._check_open()
            if found := _ENDS.match(text):
                self.refuse(found[1].upper())
            try:
                return call()
            except sqlite3.OperationalError as error:
                if self._overdue:
                    raise self._too_long() from error
                raise

    def refuse(self, what: str) -> None:
        """Raise the error for what the user's code may not do."""
        raise ContextError(
            f"{what} would end the transaction of ctx.connection, which is committed together with the task's "
            "completion when the function returns, and undone when it raises; leave that to the worker"
        )

    def expire(self) -> None:
        """Undo the transaction, and refuse later statements of the user's; called from outside."""
        self._overdue = True
        while not self._lock.acquire(timeout=_INTERRUPT_SECONDS):
            with suppress(sqlite3.ProgrammingError):  # the loan has just ended, and its connection is closed
                self._connection.interrupt()
        try:
            if not self._returned:
                self._undoing = True
                self._undo()
        except sqlite3.Error:
            pass  # Blocked by rows that the user's code still reads; the end of the loan undoes it.
        finally:
            self._undoing = False
            self._lock.release()

    def _check_open(self) -> None:
        if self._overdue:
            raise self._too_long()
        if not self._connection.in_transaction:
            raise ContextError(
                "the transaction of ctx.connection is gone: SQLite gave it up after an error, or a statement ended it; "
                "let such an error pass, so that the task is tried again"
            )

    def _too_long(self) -> DatabaseBusy:
        return DatabaseBusy(
            f"a transactional task held SQLite's only writer for more than {self._limit:g} s and was undone; do the "
            "slow part outside, raise busy_timeout_seconds, or use PostgreSQL"
        )


class LentConnection(Connection):
    """A connection that is like any other while it is not lent."""

    loan: Loan | None = None

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(factory or LentCursor)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        # sqlite3's own does not go through cursor().
        return _run(self, sql, lambda: super(LentConnection, self).execute(sql, parameters))

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        return _run(self, sql, lambda: super(LentConnection, self).executemany(sql, parameters))

    def executescript(self, sql_script: str, /) -> sqlite3.Cursor:
        self._keep(SCRIPT)
        return super().executescript(sql_script)

    def commit(self) -> None:
        self._keep("commit()")
        super().commit()

    def rollback(self) -> None:
        self._keep("rollback()")
        super().rollback()

    def close(self) -> None:
        self._keep("close()")
        super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Any:
        if error is None:
            self._keep("`with ctx.connection`")
        elif self.loan is not None:
            return False
        return super().__exit__(kind, error, trace)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("isolation_level", "autocommit"):
            self._keep(f"setting {name}")
        super().__setattr__(name, value)

    def _keep(self, what: str) -> None:
        if self.loan is not None:
            self.loan.refuse(what)


class LentCursor(sqlite3.Cursor):
    """A cursor of such a connection."""

    def execute(self, sql: str, parameters: Any = (), /) -> Self:
        return _run(self.connection, sql, lambda: super(LentCursor, self).execute(sql, parameters))

    def executemany(self, sql: str, seq_of_parameters: Iterable[Any], /) -> Self:
        return _run(self.connection, sql, lambda: super(LentCursor, self).executemany(sql, seq_of_parameters))

    def executescript(self, sql_script: str, /) -> sqlite3.Cursor:
        if (loan := _loan_of(self.connection)) is not None:
            loan.refuse(SCRIPT)
        return super().executescript(sql_script)


def _run(connection: sqlite3.Connection, text: str, call: Callable[[], T]) -> T:
    loan = _loan_of(connection)
    return call() if loan is None else loan.run(text, call)


def _loan_of(connection: sqlite3.Connection) -> Loan | None:
    return connection.loan if isinstance(connection, LentConnection) else None
