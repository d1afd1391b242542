"""A queue's database reached through Django's own connection of each thread: no pool and no connection beside it.

What runs here joins the open `atomic()` block, is undone with it, sees what a test has not committed, and obeys
whatever is set up for the connection.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from tasklib.core.time.clock import Clock, DatabaseClock
from tasklib.errors import ConfigurationError, SchemaMissing
from tasklib.storage.database import Database, Listener, Transaction
from tasklib.storage.dialects.sqlite import SqliteDialect
from tasklib.storage.enlist import Enlisted, enlist
from tasklib.storage.shared_migrate import migrate_on, schema_on, script_on
from tasklib.storage.statement import Operation, T


class DjangoDatabase:
    """The database behind one alias of Django's DATABASES."""

    def __init__(self, alias: str, clock: Clock | None = None) -> None:
        self.alias = alias
        self.dialect = "sqlite" if connections[alias].vendor == "sqlite" else "postgres"
        self.clock: Clock = clock or DatabaseClock()
        self._dialects: dict[str, Any] = {}

    def run(self, make: Callable[[], Operation[T]], *, repeatable: bool = True) -> T:
        """Run an operation as a whole: in the open transaction, or in one of its own."""
        with transaction.atomic(using=self.alias):
            return self.run_on(connections[self.alias], make)

    async def arun(self, make: Callable[[], Operation[T]], *, repeatable: bool = True) -> T:
        """The same in the thread that Django's async code uses for the database."""
        return await sync_to_async(lambda: self.run(make, repeatable=repeatable))()

    def run_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        """Run an operation on a Django connection; without an open transaction each statement is one by itself."""
        try:
            return self._enlisted(connection).run(make())
        except SchemaMissing as error:
            raise SchemaMissing(
                f"the database {self.alias!r} has no tables of tasklib: run `python manage.py migrate`, with "
                f"'tasklib.contrib.django' in INSTALLED_APPS"
            ) from error

    async def arun_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        """The same in the thread that Django's async code uses for the database."""
        return await sync_to_async(lambda: self.run_on(connection, make))()

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """A block of `atomic()` on this thread's connection, which the user's code and our operations share."""
        with transaction.atomic(using=self.alias):
            yield _Shared(self, connections[self.alias])

    @asynccontextmanager
    async def atransaction(self) -> AsyncGenerator[Transaction]:
        """Refused: Django has no transaction that lasts over an `await`."""
        raise ConfigurationError("Django has no transaction for coroutines: define the task with `def`")
        yield

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Refused: a connection that is lent for one call cannot listen."""
        raise ConfigurationError("a queue on Django's connections cannot wait for changes: call result.refresh()")

    def migrate(self) -> list[str]:
        """Apply what is missing; `manage.py migrate` does it."""
        with transaction.atomic(using=self.alias):
            return migrate_on(connections[self.alias])

    def migration_script(self) -> str:
        """What `migrate` would run now, as SQL; empty if nothing is missing.  Changes nothing."""
        return script_on(connections[self.alias])

    def close(self) -> None:
        """Nothing is kept: Django closes its connections."""

    async def aclose(self) -> None:
        """Nothing is kept: Django closes its connections."""

    def _enlisted(self, connection: Any) -> Enlisted:
        return enlist(connection, self._dialect_of(connection), self.clock)

    def _dialect_of(self, connection: Any) -> Any:
        if connection.vendor == "sqlite":
            return SqliteDialect()
        # Settings may change the database or the search path under an alias, as tests do.
        place = f"{connection.settings_dict['NAME']} {connection.settings_dict['OPTIONS'].get('options')}"
        if place not in self._dialects:
            from tasklib.storage.dialects.postgres import PostgresDialect

            self._dialects[place] = PostgresDialect(schema_on(connection))
        return self._dialects[place]


def for_worker(own: Database, alias: str) -> Database:
    """A worker's own database, but for transactional tasks: they share the transaction of Django's connection."""
    return cast("Database", _WorkerDatabase(own, alias))


class _WorkerDatabase:
    """Passes on everything but transactions."""

    def __init__(self, own: Database, alias: str) -> None:
        self._own = own
        self._shared = DjangoDatabase(alias, own.clock)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def transaction(self) -> Any:
        """The transaction of a task defined with `transactional=True`, on Django's connection of its thread."""
        return self._shared.transaction()

    def atransaction(self) -> Any:
        """Refused: Django has no transaction that lasts over an `await`."""
        return self._shared.atransaction()


class _Shared:
    """An `atomic()` block, lent to the user's code."""

    def __init__(self, database: DjangoDatabase, connection: Any) -> None:
        self._database = database
        self.connection = connection

    def run(self, make: Callable[[], Operation[T]]) -> T:
        return self._database.run_on(self.connection, make)

    async def arun(self, make: Callable[[], Operation[T]]) -> T:
        return await self._database.arun_on(self.connection, make)

    def abort(self) -> None:
        """Nothing can end a statement on Django's connection from outside: it is undone when the function ends."""
