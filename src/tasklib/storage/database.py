"""The interface of a database: it runs operations, notifies of changes, and keeps its schema up to date."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from tasklib.core.time.clock import Clock
from tasklib.storage.statement import Operation, T

Listener = Callable[[str], None]
"""Called from any thread with what happened: `new`, `done:<id>`, `cancel`, or `changed` when it is not known."""


class Transaction(Protocol):
    """A transaction that the user's code and our operations share."""

    @property
    def connection(self) -> Any:
        """The driver's own connection: psycopg's, blocking or not, or sqlite3's."""
        ...

    def run(self, make: Callable[[], Operation[T]]) -> T:
        """Run an operation inside it."""
        ...

    async def arun(self, make: Callable[[], Operation[T]]) -> T:
        """Run an operation inside it, awaiting."""
        ...

    def abort(self) -> None:
        """Undo it at once, from another thread than the one that blocks in it: a statement that runs is interrupted,
        later ones are refused."""
        ...


class Database(Protocol):
    """One database, usable from any thread and any event loop."""

    dialect: str
    clock: Clock
    """Where statements take `now` from."""

    def run(self, make: Callable[[], Operation[T]], *, repeatable: bool = True) -> T:
        """Run an operation, blocking.  A repeatable one is tried again after a deadlock or a broken connection."""
        ...

    async def arun(self, make: Callable[[], Operation[T]], *, repeatable: bool = True) -> T:
        """Run an operation without blocking the event loop."""
        ...

    def run_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        """Run an operation in the open transaction of the caller's own connection, and never end it."""
        ...

    async def arun_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        """The same for the caller's asynchronous connection."""
        ...

    def transaction(self) -> AbstractContextManager[Transaction]:
        """An open transaction for the user's own writes, committed at the end of the block."""
        ...

    def atransaction(self) -> AbstractAsyncContextManager[Transaction]:
        """The same without blocking the event loop."""
        ...

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call the listener on every change until the function returned is called."""
        ...

    def migrate(self) -> list[str]:
        """Bring the schema up to date; returns the names of the migrations applied."""
        ...

    def migration_script(self) -> str:
        """What `migrate` would run now, as SQL; empty if nothing is missing.  Changes nothing."""
        ...

    def close(self) -> None:
        """Close every connection."""
        ...

    async def aclose(self) -> None:
        """Close every connection from within an event loop."""
        ...


class HasDatabase(Protocol):
    """An object with a database, which it may open only when it is first needed."""

    @property
    def database(self) -> Database:
        """The database."""
        ...
