"""An asynchronous pool that does not lose cancellations, and lends the connection returned last."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool


class CancellablePool(AsyncConnectionPool[AsyncConnection[Any]]):
    """psycopg's pool, but a worker that is cancelled while it opens a connection stops after it.

    psycopg's own takes the cancellation for a failed attempt and goes on. asyncio.run() cancels every task at its end
    and waits for them: a program short enough to end while its pool still opens a connection would never end.

    And psycopg's takes turns: submitting one task after the other would use another server process each time, whose
    processor cache is cold, which costs 7 % of a lone submit.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._pool: deque[AsyncConnection[Any]] = _LastFirst()

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
