"""Getting a connection from a pool in a way that notices soon when the server is back.

A pool that lost its server tries to connect with pauses that double without end, and whoever asks it for a connection
waits for that.  Ours gives up at once, and is asked again: each time it tries anew.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

RECONNECT_SECONDS = 0.2
"""How long a pool goes on trying by itself."""
ASK_SECONDS = 0.4
"""How long one request for a connection waits."""


@contextmanager
def connection_of(pool: ConnectionPool[Connection[Any]], seconds: float) -> Generator[Connection[Any]]:
    """A connection of the pool; PoolTimeout if none is free within so many seconds."""
    with ExitStack() as stack:
        connection: Connection[Any] | None = None
        for wait, is_last in _waits(seconds):
            with _unless(is_last):
                connection = stack.enter_context(pool.connection(timeout=wait))
                break
        assert connection is not None
        yield connection


@asynccontextmanager
async def aconnection_of(
    pool: AsyncConnectionPool[AsyncConnection[Any]], seconds: float
) -> AsyncGenerator[AsyncConnection[Any]]:
    """The same without blocking the event loop."""
    async with AsyncExitStack() as stack:
        connection: AsyncConnection[Any] | None = None
        for wait, is_last in _waits(seconds):
            with _unless(is_last):
                connection = await stack.enter_async_context(pool.connection(timeout=wait))
                break
        assert connection is not None
        yield connection


def _waits(seconds: float) -> Iterator[tuple[float, bool]]:
    """How long to wait each time, and whether it is the last."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > ASK_SECONDS:
        yield ASK_SECONDS, False
    yield max(0.0, left), True


def _unless(is_last: bool) -> AbstractContextManager[None]:
    return nullcontext() if is_last else suppress(PoolTimeout)
