"""The pools of psycopg, with a short way to an idle connection, and the connection returned last lent first.

psycopg's own way takes five coroutines, two locks and three log lines, more than a small statement costs.  And it takes
turns: submitting one task after the other would use another server process each time, whose processor cache is cold,
which costs 7 % of a lone submit.
"""

# ruff: noqa: SLF001  psycopg's pools have no public way; tests/integration/test_pool.py says when they have changed.
from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any, Protocol, TypeVar

from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool

C = TypeVar("C", Connection[Any], AsyncConnection[Any])


class BlockingPool(ConnectionPool[Connection[Any]]):
    """The pool of all threads."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        with self._lock:
            self._pool: deque[Connection[Any]] = _LastFirst(self._pool)

    def lend_idle(self) -> Connection[Any] | None:
        """An idle connection, if there is one."""
        with self._lock:
            return _lend(self)

    def take_back(self, connection: Connection[Any]) -> bool:
        """Whether the connection is idle again; if not, `putconn` decides what becomes of it."""
        with self._lock:
            return _take_back(self, connection)


class LoopPool(AsyncConnectionPool[AsyncConnection[Any]]):
    """The pool of one event loop, which loses no cancellation.

    psycopg's own takes the cancellation of its worker for a failed attempt to connect, and goes on. asyncio.run()
    cancels every task at its end and waits for them: a program short enough to end while its pool still opens a
    connection would never end.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._pool: deque[AsyncConnection[Any]] = _LastFirst(self._pool)

    def lend_idle(self) -> AsyncConnection[Any] | None:
        """An idle connection, if there is one."""
        return _lend(self)

    def take_back(self, connection: AsyncConnection[Any]) -> bool:
        """Whether the connection is idle again; if not, `putconn` decides what becomes of it."""
        return _take_back(self, connection)

    async def close(self, timeout: float = 5.0) -> None:
        """Close the pool and its idle connections, also at the end of asyncio.run(): that has cancelled the pool's
        workers, and psycopg's own stops at the cancellation of the first, before it closes a connection."""
        idle = list(self._pool)
        try:
            await super().close(timeout)
        finally:
            for connection in idle:
                await connection.close()

    @classmethod
    async def worker(cls, q: Any) -> None:
        """Run the pool's internal jobs, one after the other."""
        await super().worker(_UntilCancelled(q))  # type: ignore[arg-type]

    async def getconn(self, timeout: float | None = None) -> AsyncConnection[Any]:
        """Wait for a connection.  A wait that is cancelled at the moment it gets one raises CancelledError; psycopg's
        own loses the cancellation, and a worker that should stop would go on."""
        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        connection = await super().getconn(timeout)
        if task is not None and task.cancelling() > before:
            await self.putconn(connection)
            raise asyncio.CancelledError
        return connection


class _Pool(Protocol[C]):
    """What both pools of psycopg have inside."""

    _pool: deque[C]
    _waiting: deque[Any]
    _closed: bool
    _nconns_min: int
    _drained_at: float


def _lend(pool: _Pool[C]) -> C | None:
    if not pool._pool or pool._closed:
        return None
    connection = pool._pool.pop()
    pool._nconns_min = min(pool._nconns_min, len(pool._pool))
    connection._pool = pool  # type: ignore[assignment]
    return connection


def _take_back(pool: _Pool[C], connection: C) -> bool:
    if (
        pool._closed
        or pool._waiting
        or connection.pgconn.transaction_status != TransactionStatus.IDLE
        or connection._created_at <= pool._drained_at
        or connection._expire_at <= time.monotonic()
    ):
        return False
    connection._pool = None  # One that is in the pool refers to none.
    pool._pool.append(connection)
    return True


class _LastFirst(deque[Any]):
    """The idle connections: the one returned last is lent first."""

    def popleft(self) -> Any:
        return self.pop()


class _UntilCancelled:
    """The pool's queue of internal jobs; it raises for a worker that was cancelled."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    async def get(self) -> Any:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return await self._queue.get()
