"""PostgreSQL through psycopg: a blocking pool, an asynchronous pool per event loop, and the caller's own connection."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from weakref import WeakKeyDictionary, finalize

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolClosed, PoolTimeout

from tasklib.core.calls.own_tasks import own_task, owning_tasks
from tasklib.core.clock import Clock
from tasklib.core.config import Config, redact_url
from tasklib.core.redaction import redact_url_error
from tasklib.errors import ContextError, DatabaseBusy, DatabaseUnavailable, TaskLibError
from tasklib.storage.database import Listener, Transaction
from tasklib.storage.dialects.postgres import PostgresDialect, is_conflict, translate
from tasklib.storage.forking import notice_forks
from tasklib.storage.postgres.cancellable_pool import CancellablePool
from tasklib.storage.postgres.grants import Duty, grants
from tasklib.storage.postgres.listener import PostgresListener
from tasklib.storage.postgres.pool_lending import RECONNECT_SECONDS, AsyncLent, Lent
from tasklib.storage.postgres.schema import current_schema, ensure_schema
from tasklib.storage.postgres.sending import execute, execute_async
from tasklib.storage.postgres.session import SessionSetup
from tasklib.storage.run import run_awaiting, run_blocking, steps
from tasklib.storage.statement import Operation, T

if TYPE_CHECKING:
    from tasklib.storage.enlist import Enlisted

CONFLICT_TRIES = 5
CLOSED = "the queue was closed while it was used; close it last"
Purpose: TypeAlias = Literal["queue", "lending"]
"""What a pool is for: our own short operations, or transactions lent to users' code, which may hold all of theirs for
long and must not keep heartbeats, renewals and requests to cancel from getting one."""


class PostgresDatabase:
    """One schema of a PostgreSQL database."""

    dialect = "postgres"

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self.clock = clock
        self._options = _connection_options(config)
        self._setup = SessionSetup(config)
        self._lock = threading.Lock()
        self._ready: PostgresDialect | None = None
        self._pools: dict[Purpose, ConnectionPool[Connection[Any]]] = {}
        self._loop_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Purpose, _LoopPool]] = WeakKeyDictionary()
        self._listener: PostgresListener | None = None
        self._closings: list[finalize[..., PostgresDatabase]] = []
        notice_forks(self)

    def run(self, make: Callable[[], Operation[T]], *, repeatable: bool = True) -> T:
        """Run an operation on a connection of the blocking pool."""
        dialect = self._ensure()
        memory: dict[str, Any] = {}
        for remaining in reversed(range(CONFLICT_TRIES)):
            try:
                with Lent(self._blocking_pool(), self._config.connect_timeout_seconds) as connection:
                    todo = steps(make(), translate, self.clock, memory)
                    return run_blocking(todo, lambda s: execute(connection, dialect, s))
            except PoolTimeout as error:
                raise self._explain(error) from error
            except PoolClosed as error:
                raise DatabaseUnavailable(CLOSED) from error
            except TaskLibError as error:
                if remaining == 0 or not _repeat(error, repeatable, remaining):
                    raise
                if isinstance(error, DatabaseUnavailable):
                    # What cut this connection has likely cut those beside it.
                    self._blocking_pool().check()
                time.sleep(_pause(remaining))
        raise AssertionError("unreachable")

    async def arun(self, make: Callable[[], Operation[T]], *, repeatable: bool = True) -> T:
        """Run an operation on a connection of this event loop's pool."""
        dialect = await self._ensured()
        memory: dict[str, Any] = {}
        for remaining in reversed(range(CONFLICT_TRIES)):
            try:
                async with AsyncLent(await self._loop_pool(), self._config.connect_timeout_seconds) as connection:
                    todo = steps(make(), translate, self.clock, memory)
                    return await run_awaiting(todo, lambda s: execute_async(connection, dialect, s))
            except PoolTimeout as error:
                raise await asyncio.to_thread(self._explain, error) from error
            except PoolClosed as error:
                raise DatabaseUnavailable(CLOSED) from error
            except TaskLibError as error:
                if remaining == 0 or not _repeat(error, repeatable, remaining):
                    raise
                if isinstance(error, DatabaseUnavailable):
                    await (await self._loop_pool()).check()
                await asyncio.sleep(_pause(remaining))
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
                connection = stack.enter_context(self._blocking_pool("lending").connection())
            except PoolTimeout as error:
                raise self._explain(error) from error
            except PoolClosed as error:
                raise DatabaseUnavailable(CLOSED) from error
            connection.row_factory, connection.cursor_factory = tuple_row, Cursor  # as if nobody had it before
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
                connection = await stack.enter_async_context((await self._loop_pool("lending")).connection())
            except PoolTimeout as error:
                raise await asyncio.to_thread(self._explain, error) from error
            except PoolClosed as error:
                raise DatabaseUnavailable(CLOSED) from error
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
            pools, self._pools = self._pools, {}
        if listener is not None:
            listener.close()
        for pool in pools.values():
            pool.close()

    async def aclose(self) -> None:
        """Close everything, this event loop's pools included."""
        for loop_pool in self._loop_pools.pop(asyncio.get_running_loop(), {}).values():
            await loop_pool.close()
        await asyncio.to_thread(self.close)

    async def _ensured(self) -> PostgresDialect:
        return await asyncio.to_thread(self._ensure) if self._ready is None else self._ready

    def _ensure(self) -> PostgresDialect:
        """Check the schema once; the connection is made directly, so that its failure is told in the server's words."""
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
            raise self._unreachable(error) from error

    def _connect_listener(self) -> Connection[Any]:
        return self._connect_to(self._config.listen_url or self._config.database_url)

    def _connect_to(self, url: str) -> Connection[Any]:
        """A connection for few statements, which are not worth preparing: a pooler may stand in between."""
        return psycopg.connect(url, autocommit=True, prepare_threshold=None, **self._options)

    def _unreachable(self, error: Exception) -> DatabaseUnavailable:
        url = self._config.database_url
        return DatabaseUnavailable(
            f"cannot connect to {redact_url(url)}: {redact_url_error(error, url)}; "
            "check the URL, and that the server runs and accepts this user"
        )

    def _explain(self, timeout: PoolTimeout) -> TaskLibError:
        """Why the pool gave no connection: the server is gone, or everything is in use."""
        try:
            self._connect().close()
        except DatabaseUnavailable as error:
            return error
        return DatabaseBusy(
            f"all {self._config.pool_size} connections of the pool were in use for "
            f"{self._config.connect_timeout_seconds:g} s; raise pool_size, or look for what holds them ({timeout})"
        )

    def forget_parent(self) -> None:
        """Connections do not survive a fork: a child makes its own, and leaves the parent's alone."""
        self._lock = threading.Lock()
        for closing in self._closings:
            closing.detach()  # at the child's end it would say goodbye to the server in its parent's name
        self._closings, self._pools, self._listener, self._loop_pools = [], {}, None, WeakKeyDictionary()

    def _blocking_pool(self, purpose: Purpose = "queue") -> ConnectionPool[Connection[Any]]:
        with self._lock:
            pool = self._pools.get(purpose)
            if pool is None:
                pool = self._pools[purpose] = ConnectionPool(
                    self._config.database_url,
                    configure=self._setup.configure if purpose == "queue" else self._setup.configure_lent,
                    open=True,
                    **self._pool_options(purpose),
                )
                self._closings.append(finalize(self, pool.close))
            return pool

    async def _loop_pool(self, purpose: Purpose = "queue") -> AsyncConnectionPool[AsyncConnection[Any]]:
        loop_pools = self._loop_pools.setdefault(asyncio.get_running_loop(), {})
        if purpose not in loop_pools:
            loop_pools[purpose] = _LoopPool(
                CancellablePool(
                    self._config.database_url,
                    configure=self._setup.configure_async if purpose == "queue" else self._setup.configure_lent_async,
                    open=False,
                    **self._pool_options(purpose),
                )
            )
        return await loop_pools[purpose].opened()

    def _pool_options(self, purpose: Purpose) -> dict[str, Any]:
        return {
            "kwargs": {**self._options, "autocommit": True, "prepare_threshold": self._setup.prepare_threshold},
            "min_size": 1 if purpose == "queue" else 0,
            "max_size": self._config.pool_size,
            "timeout": self._config.connect_timeout_seconds,
            "reconnect_timeout": RECONNECT_SECONDS,
            "name": "tasklib" if purpose == "queue" else "tasklib-lending",
        }


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
    """Inside, psycopg refuses commit() and rollback(); its own signal to roll back must not end the block silently."""
    try:
        yield
    except psycopg.Rollback as error:
        raise ContextError(
            "psycopg.Rollback was raised for the transaction of ctx.connection itself; raise another exception, "
            "which undoes it too, or raise it inside `with ctx.connection.transaction():`"
        ) from error


def _check_can_commit(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    """psycopg sends no COMMIT on a connection that was found broken, and says nothing of it."""
    if connection.closed:
        raise DatabaseUnavailable("the connection broke before COMMIT, and everything in the transaction was undone")


@contextmanager
def _translated() -> Generator[None]:
    """Errors of our own statements as ours; those the user's code raised are the user's and pass as they are."""
    try:
        yield
    except psycopg.OperationalError as error:
        if error.sqlstate is None:
            raise translate(error) from error
        raise


class _LoopPool:
    """A pool that is closed when its event loop is shut down, even if nobody closes it.

    asyncio finishes every suspended asynchronous generator before it closes a loop; the pool's end waits in one.
    """

    def __init__(self, pool: AsyncConnectionPool[AsyncConnection[Any]]) -> None:
        self._pool = pool
        self._life: AsyncGenerator[None] = self._live()
        self._opening: asyncio.Future[None] | None = None

    async def opened(self) -> AsyncConnectionPool[AsyncConnection[Any]]:
        if self._opening is None:
            self._opening = own_task(self._open())
        if not self._opening.done():
            await asyncio.shield(self._opening)
        return self._pool

    async def close(self) -> None:
        await self._life.aclose()

    async def _open(self) -> None:
        await anext(self._life)

    async def _live(self) -> AsyncGenerator[None]:
        with owning_tasks():  # without its tasks the pool would lend no connection any more
            await self._pool.open()
        try:
            yield
        finally:
            await self._pool.close()


def _connection_options(config: Config) -> dict[str, Any]:
    """What libpq is told beside the URL: connecting is bounded, a silent network is noticed within half a minute."""
    return {
        "connect_timeout": max(2, round(config.connect_timeout_seconds)),
        "application_name": "tasklib",
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 25_000,
    }


def _repeat(error: TaskLibError, repeatable: bool, remaining: int) -> bool:
    """Whether to do it again: after a conflict always, after a broken connection once and only if that is harmless."""
    if is_conflict(error):
        return True
    return repeatable and isinstance(error, DatabaseUnavailable) and remaining == CONFLICT_TRIES - 1


def _pause(remaining: int) -> float:
    return random.uniform(0, 0.01 * (CONFLICT_TRIES - remaining))
