"""PostgreSQL through psycopg: a blocking pool, an asynchronous pool per event loop, and the caller's own connection."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import PoolClosed, PoolTimeout

from tasklib.core.config import Config
from tasklib.core.time.clock import Clock
from tasklib.errors import ContextError, DatabaseBusy, DatabaseUnavailable, TaskLibError
from tasklib.storage.database import Listener, Transaction
from tasklib.storage.dialects.postgres import PostgresDialect, is_conflict, translate, unreachable
from tasklib.storage.forking import notice_forks
from tasklib.storage.postgres.grants import Duty, grants
from tasklib.storage.postgres.listener import PostgresListener
from tasklib.storage.postgres.pools import AsyncLent, Lent, Pools
from tasklib.storage.postgres.schema import current_schema, ensure_schema, migration_script
from tasklib.storage.postgres.sending import execute, execute_async
from tasklib.storage.run import run_awaiting, run_blocking, steps
from tasklib.storage.statement import Operation, T

if TYPE_CHECKING:
    from tasklib.storage.enlist import Enlisted

CONFLICT_TRIES = 5
CANCEL_SECONDS = 5.0
"""How long the server may take to take note that a statement is to be cancelled."""


class PostgresDatabase:
    """One schema of a PostgreSQL database."""

    dialect = "postgres"

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self.clock = clock
        self._pools = Pools(config)
        self._lock = threading.Lock()
        self._ready: PostgresDialect | None = None
        self._listener: PostgresListener | None = None
        notice_forks(self)

    def run(self, make: Callable[[], Operation[T]], *, repeatable: bool = True) -> T:
        """Run an operation on a connection of the blocking pool."""
        memory: dict[str, Any] = {}
        todo = steps(make(), translate, self.clock, memory)
        dialect = self._ensure()
        for remaining in reversed(range(CONFLICT_TRIES)):
            try:
                with Lent(self._pools.blocking(), self._config.connect_timeout_seconds) as connection:
                    return run_blocking(todo, lambda s: execute(connection, dialect, s))
            except (PoolTimeout, PoolClosed) as error:
                raise self._explain(error) from error
            except TaskLibError as error:
                if remaining == 0 or not _repeat(error, repeatable, remaining):
                    raise
                if isinstance(error, DatabaseUnavailable):
                    # What cut this connection has likely cut the others too.
                    self._pools.blocking().check()
                time.sleep(_pause(remaining))
            todo = steps(make(), translate, self.clock, memory)
        raise AssertionError("unreachable")

    async def arun(self, make: Callable[[], Operation[T]], *, repeatable: bool = True) -> T:
        """Run an operation on a connection of this event loop's pool."""
        memory: dict[str, Any] = {}
        todo = steps(make(), translate, self.clock, memory)
        dialect = await self._ensured()
        for remaining in reversed(range(CONFLICT_TRIES)):
            try:
                async with AsyncLent(await self._pools.of_loop(), self._config.connect_timeout_seconds) as connection:
                    return await run_awaiting(todo, lambda s: execute_async(connection, dialect, s))
            except (PoolTimeout, PoolClosed) as error:
                raise await self._explain_async(error) from error
            except TaskLibError as error:
                if remaining == 0 or not _repeat(error, repeatable, remaining):
                    raise
                if isinstance(error, DatabaseUnavailable):
                    await (await self._pools.of_loop()).check()
                await asyncio.sleep(_pause(remaining))
            todo = steps(make(), translate, self.clock, memory)
        raise AssertionError("unreachable")

    def run_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        """Run an operation inside the caller's transaction."""
        from tasklib.storage.enlist import enlist

        return enlist(connection, self._ensure(), self.clock).run(make())

    async def arun_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        """Run an operation inside the caller's transaction, awaiting."""
        dialect = await self._ensured()
        from tasklib.storage.enlist import enlist

        return await enlist(connection, dialect, self.clock).arun(make())

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """A transaction on a connection of the blocking pool that is kept for users' code."""
        dialect = self._ensure()
        with ExitStack() as stack:
            try:
                connection = stack.enter_context(self._pools.blocking("lending").connection())
            except (PoolTimeout, PoolClosed) as error:
                raise self._explain(error) from error
            connection.row_factory, connection.cursor_factory = tuple_row, Cursor  # whatever the last borrower set
            stack.enter_context(_translated())
            stack.enter_context(connection.transaction())
            with _kept_open():
                yield _Transaction(connection, dialect, self.clock)
            _check_can_commit(connection)

    @asynccontextmanager
    async def atransaction(self) -> AsyncGenerator[Transaction]:
        """A transaction on a connection of this event loop's pool that is kept for users' code."""
        dialect = await self._ensured()
        async with AsyncExitStack() as stack:
            try:
                connection = await stack.enter_async_context((await self._pools.of_loop("lending")).connection())
            except (PoolTimeout, PoolClosed) as error:
                raise await self._explain_async(error) from error
            connection.row_factory, connection.cursor_factory = tuple_row, AsyncCursor
            stack.enter_context(_translated())
            await stack.enter_async_context(connection.transaction())
            with _kept_open():
                yield _Transaction(connection, dialect, self.clock)
            _check_can_commit(connection)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Listen for notifications on a connection of its own."""
        dialect = self._ensure()
        with self._lock:
            if self._listener is None:
                self._listener = PostgresListener(self._connect_listener, dialect.channel)
            return self._listener.subscribe(listener)

    def migrate(self) -> list[str]:
        """Apply what is missing, whatever auto_migrate says."""
        with self._connect() as connection:
            dialect = PostgresDialect(current_schema(connection, self._config))
            try:
                return ensure_schema(connection, dialect, migrate=True)
            except psycopg.Error as error:
                raise translate(error) from error

    def migration_script(self) -> str:
        """What `migrate` would run now, as SQL; empty if nothing is missing.  Changes nothing."""
        with self._connect() as connection:
            return migration_script(connection, PostgresDialect(current_schema(connection, self._config)))

    def grant(self, duty: Duty, role: str, *, apply: bool) -> list[str]:
        """The statements that give a role what its duty needs; with `apply` they are run, all or none."""
        with self._connect() as connection:
            statements = grants(current_schema(connection, self._config), duty, role)
            try:
                with connection.transaction():
                    for statement in statements if apply else ():
                        connection.execute(statement.encode())
            except psycopg.Error as error:
                raise translate(error) from error
        return statements

    def close(self) -> None:
        """Close the listener and the blocking pools; those of an event loop close with it."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        self._pools.close()

    async def aclose(self) -> None:
        """Close everything, this event loop's pools included."""
        await self._pools.close_of_loop()
        await asyncio.to_thread(self.close)

    def forget_parent(self) -> None:
        """A forked child opens connections of its own."""
        self._lock = threading.Lock()
        self._listener = None
        self._pools.forget_parent()

    async def _ensured(self) -> PostgresDialect:
        return await asyncio.to_thread(self._ensure) if self._ready is None else self._ready

    def _ensure(self) -> PostgresDialect:
        """Check the schema once, on a connection of its own, so that an error is the server's own message."""
        if self._ready is not None:
            return self._ready
        with self._lock:
            if self._ready is None:
                with self._connect() as connection:
                    dialect = PostgresDialect(current_schema(connection, self._config))
                    try:
                        ensure_schema(connection, dialect, migrate=self._config.auto_migrate)
                    except psycopg.Error as error:
                        raise translate(error) from error
                self._ready = dialect
            return self._ready

    def _connect(self) -> Connection[Any]:
        try:
            return self._connect_to(self._config.database_url)
        except psycopg.Error as error:
            raise unreachable(self._config.database_url, error) from error

    def _connect_listener(self) -> Connection[Any]:
        return self._connect_to(self._config.listen_url or self._config.database_url)

    def _connect_to(self, url: str) -> Connection[Any]:
        """A connection for few statements, which are not worth preparing: a pooler may stand in between."""
        return psycopg.connect(url, autocommit=True, prepare_threshold=None, **self._pools.options)

    def _explain(self, refused: PoolTimeout | PoolClosed) -> TaskLibError:
        """Why the pool gave no connection: it is closed, the server is down, or all connections are in use."""
        if isinstance(refused, PoolClosed):
            return DatabaseUnavailable("the queue was closed while it was used; close it last")
        try:
            self._connect().close()
        except DatabaseUnavailable as error:
            return error
        return DatabaseBusy(
            f"all {self._config.pool_size} connections of the pool were in use for "
            f"{self._config.connect_timeout_seconds:g} s; raise pool_size, or find what holds them ({refused})"
        )

    async def _explain_async(self, refused: PoolTimeout | PoolClosed) -> TaskLibError:
        # No thread for what needs none: at the end of a program none can be started.
        closed = isinstance(refused, PoolClosed)
        return self._explain(refused) if closed else await asyncio.to_thread(self._explain, refused)


class _Transaction:
    """A connection with a transaction open, lent to the user's code."""

    def __init__(self, connection: Any, dialect: PostgresDialect, clock: Clock) -> None:
        self.connection = connection
        self._dialect = dialect
        self._clock = clock

    def run(self, make: Callable[[], Operation[T]]) -> T:
        return self._enlisted().run(make())

    async def arun(self, make: Callable[[], Operation[T]]) -> T:
        return await self._enlisted().arun(make())

    def abort(self) -> None:
        # A connection cannot be closed under the thread that uses it, but its socket can be: the server then undoes the
        # transaction.  While it runs a statement it would not notice.
        connection = self.connection
        with suppress(psycopg.Error, OSError):
            if connection.info.transaction_status == TransactionStatus.ACTIVE:
                connection.cancel_safe(timeout=CANCEL_SECONDS)
        with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)

    def _enlisted(self) -> Enlisted:
        from tasklib.storage.enlist import enlist

        enlisted = enlist(self.connection, self._dialect, self._clock)
        match self.connection.info.transaction_status:
            case TransactionStatus.IDLE:
                raise ContextError(
                    "a statement of the function ended the transaction of ctx.connection, which is committed together "
                    "with the task's completion when the function returns; send no COMMIT and no ROLLBACK"
                )
            case TransactionStatus.INERROR:
                raise ContextError(
                    "a statement of the function failed, and PostgreSQL lets nothing more happen in its transaction; "
                    "let the error pass, or put what may fail into `with ctx.connection.transaction():`"
                )
            case _:
                return enlisted


@contextmanager
def _kept_open() -> Generator[None]:
    """psycopg refuses commit() and rollback() in the block; its Rollback exception must not end it silently either."""
    try:
        yield
    except psycopg.Rollback as error:
        raise ContextError(
            "psycopg.Rollback was raised for the transaction of ctx.connection itself; raise another exception, "
            "which undoes it too, or raise it inside `with ctx.connection.transaction():`"
        ) from error


def _check_can_commit(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    """Raise if the connection is broken: psycopg then sends no COMMIT and raises nothing."""
    if connection.closed:
        raise DatabaseUnavailable("the connection broke before COMMIT, and everything in the transaction was undone")


@contextmanager
def _translated() -> Generator[None]:
    """Translate lost connections; errors that the user's own statements raised pass unchanged."""
    try:
        yield
    except psycopg.OperationalError as error:
        if error.sqlstate is None:
            raise translate(error) from error
        raise


def _repeat(error: TaskLibError, repeatable: bool, remaining: int) -> bool:
    """Whether to try again: after a conflict always, after a broken connection once and only if that is harmless."""
    if is_conflict(error):
        return True
    return repeatable and isinstance(error, DatabaseUnavailable) and remaining == CONFLICT_TRIES - 1


def _pause(remaining: int) -> float:
    return random.uniform(0, 0.01 * (CONFLICT_TRIES - remaining))
