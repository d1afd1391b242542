"""Getting a connection from a pool in a way that notices soon when the server is back.

A pool that lost its server tries to connect with pauses that double without end, and whoever asks it for a connection
waits for that.  Ours gives up at once, and is asked again: each time it tries anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

RECONNECT_SECONDS = 0.2
"""How long a pool goes on trying by itself."""
ASK_SECONDS = 0.4
"""How long one request for a connection waits."""


class Lent:
    """A connection of the pool while `with` lasts; PoolTimeout if none is free within so many seconds.

    Written out, because psycopg's own and contextlib's managers cost as much as a small statement.
    """

    __slots__ = ("_connection", "_pool", "_seconds")

    def __init__(self, pool: ConnectionPool[Connection[Any]], seconds: float) -> None:
        self._pool = pool
        self._seconds = seconds

    def __enter__(self) -> Connection[Any]:
        for wait, is_last in _waits(self._seconds):
            try:
                self._connection = self._pool.getconn(wait)
                break
            except PoolTimeout:
                if is_last:
                    raise
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and _is_busy(self._connection):
            with suppress(Exception):
                self._connection.rollback()
        self._pool.putconn(self._connection)


class AsyncLent:
    """The same without blocking the event loop."""

    __slots__ = ("_connection", "_pool", "_seconds")

    def __init__(self, pool: AsyncConnectionPool[AsyncConnection[Any]], seconds: float) -> None:
        self._pool = pool
        self._seconds = seconds

    async def __aenter__(self) -> AsyncConnection[Any]:
        for wait, is_last in _waits(self._seconds):
            try:
                self._connection = await self._pool.getconn(wait)
                break
            except PoolTimeout:
                if is_last:
                    raise
        return self._connection

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and _is_busy(self._connection):
            with suppress(Exception):
                await self._connection.rollback()
        await self._pool.putconn(self._connection)


def _is_busy(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Whether something was left open on the connection, which the next borrower must not find."""
    return not connection.closed and connection.info.transaction_status is not TransactionStatus.IDLE


def _waits(seconds: float) -> Iterator[tuple[float, bool]]:
    """How long to wait each time, and whether it is the last."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > ASK_SECONDS:
        yield ASK_SECONDS, False
    yield max(0.0, left), True
