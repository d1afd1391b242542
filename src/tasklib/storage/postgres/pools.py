"""The connection pools of one database: blocking ones for all threads, and one of each purpose per event loop.

A pool that lost its server reconnects with pauses that double without end, and every request for a connection waits for
that.  Ours gives up soon and is asked again, which makes it try at once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary, finalize

from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus
from psycopg_pool import PoolTimeout

from tasklib.core.calls.own_tasks import own_task, owning_tasks
from tasklib.core.config import Config
from tasklib.storage.dialects.postgres import is_read_only
from tasklib.storage.postgres.lending import BlockingPool, LoopPool
from tasklib.storage.postgres.session import SessionSetup

Purpose: TypeAlias = Literal["queue", "lending"]
"""What a pool is for: our own short operations, or transactions lent to users' code, which may hold all of theirs for
long and must not keep heartbeats, renewals and requests to cancel from getting one."""

RECONNECT_SECONDS = 0.2
"""How long a pool tries to reconnect by itself."""
ASK_SECONDS = 0.4
"""How long one request for a connection waits."""


class Pools:
    """Opens each pool when it is first needed."""

    def __init__(self, config: Config) -> None:
        self.options = _connection_options(config)
        self._config = config
        self._setup = SessionSetup(config)
        self._closings: list[finalize[..., Pools]] = []
        self.forget_parent()

    def forget_parent(self) -> None:
        """Connections do not survive a fork: a child opens its own, and leaves the parent's alone."""
        for closing in self._closings:
            closing.detach()  # at the child's end it would close the parent's session on the server
        self._lock = threading.Lock()
        self._closings = []
        self._blocking: dict[Purpose, BlockingPool] = {}
        self._of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Purpose, _LoopPool]] = WeakKeyDictionary()

    def blocking(self, purpose: Purpose = "queue") -> BlockingPool:
        """The pool that all threads share."""
        with self._lock:
            pool = self._blocking.get(purpose)
            if pool is None:
                pool = self._blocking[purpose] = BlockingPool(
                    self._config.database_url,
                    configure=partial(self._setup.configure, lent=purpose == "lending"),
                    open=True,
                    **self._pool_options(purpose),
                )
                self._closings.append(finalize(self, pool.close))
            return pool

    async def of_loop(self, purpose: Purpose = "queue") -> LoopPool:
        """The pool of the running event loop."""
        pools = self._of_loops.setdefault(asyncio.get_running_loop(), {})
        if purpose not in pools:
            pools[purpose] = _LoopPool(
                LoopPool(
                    self._config.database_url,
                    configure=partial(self._setup.configure_async, lent=purpose == "lending"),
                    open=False,
                    **self._pool_options(purpose),
                )
            )
        return await pools[purpose].opened()

    def close(self) -> None:
        """Close the blocking pools; those of an event loop close with it."""
        with self._lock:
            pools, self._blocking = self._blocking, {}
        for pool in pools.values():
            pool.close()

    async def close_of_loop(self) -> None:
        """Close the pools of the running event loop."""
        for pool in self._of_loops.pop(asyncio.get_running_loop(), {}).values():
            await pool.close()

    def _pool_options(self, purpose: Purpose) -> dict[str, Any]:
        return {
            "kwargs": {**self.options, "autocommit": True, "prepare_threshold": self._setup.prepare_threshold},
            # None in advance: a caller that comes while the first is being opened would have the pool open a second.
            "min_size": 0,
            "max_size": self._config.pool_size,
            "timeout": self._config.connect_timeout_seconds,
            "reconnect_timeout": RECONNECT_SECONDS,
            "name": "tasklib" if purpose == "queue" else "tasklib-lending",
        }


class Lent:
    """A connection of the pool while `with` lasts; PoolTimeout if none is free within so many seconds.

    Written out, because psycopg's own and contextlib's managers cost as much as a small statement.
    """

    __slots__ = ("_connection", "_pool", "_seconds")

    def __init__(self, pool: BlockingPool, seconds: float) -> None:
        self._pool = pool
        self._seconds = seconds

    def __enter__(self) -> Connection[Any]:
        idle = self._pool.lend_idle()
        self._connection = self._wait() if idle is None else idle
        return self._connection

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if error is not None and _is_busy(self._connection):
            with suppress(Exception):
                self._connection.rollback()
        if error is not None and is_read_only(error):
            self._connection.close()
        if not self._pool.take_back(self._connection):
            self._pool.putconn(self._connection)

    def _wait(self) -> Connection[Any]:
        for wait, is_last in _waits(self._seconds):
            try:
                return self._pool.getconn(wait)
            except PoolTimeout:
                if is_last:
                    raise
        raise AssertionError("unreachable")


class AsyncLent:
    """The same without blocking the event loop."""

    __slots__ = ("_connection", "_pool", "_seconds")

    def __init__(self, pool: LoopPool, seconds: float) -> None:
        self._pool = pool
        self._seconds = seconds

    async def __aenter__(self) -> AsyncConnection[Any]:
        idle = self._pool.lend_idle()
        self._connection = await self._wait() if idle is None else idle
        return self._connection

    async def __aexit__(self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if error is not None and _is_busy(self._connection):
            with suppress(Exception):
                await self._connection.rollback()
        if error is not None and is_read_only(error):
            await self._connection.close()
        if not self._pool.take_back(self._connection):
            await self._pool.putconn(self._connection)

    async def _wait(self) -> AsyncConnection[Any]:
        for wait, is_last in _waits(self._seconds):
            try:
                return await self._pool.getconn(wait)
            except PoolTimeout:
                if is_last:
                    raise
        raise AssertionError("unreachable")


class _LoopPool:
    """A pool that is closed when its event loop is shut down, even if it was never closed explicitly.

    asyncio finishes every suspended asynchronous generator before it closes a loop; the pool's end waits in one.
    """

    def __init__(self, pool: LoopPool) -> None:
        self._pool = pool
        self._life: AsyncGenerator[None] = self._live()
        self._opening: asyncio.Future[None] | None = None

    async def opened(self) -> LoopPool:
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
    """What libpq gets beside the URL: connecting is bounded, a silent network is noticed within half a minute."""
    return {
        "connect_timeout": max(2, round(config.connect_timeout_seconds)),
        "application_name": "tasklib",
        "client_encoding": "UTF8",  # no other encoding has every character
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 25_000,
    }


def _is_busy(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Whether something was left open on the connection, which the next borrower must not find."""
    return not connection.closed and connection.info.transaction_status is not TransactionStatus.IDLE


def _waits(seconds: float) -> Iterator[tuple[float, bool]]:
    """How long to wait each time, and whether it is the last."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > ASK_SECONDS:
        yield ASK_SECONDS, False
    yield max(0.0, left), True
