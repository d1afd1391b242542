"""An asynchronous pool whose background tasks end when they are cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool


class CancellablePool(AsyncConnectionPool[AsyncConnection[Any]]):
    """psycopg's pool, but a worker that is cancelled while it opens a connection stops after it.

    psycopg's own takes the cancellation for a failed attempt and goes on. asyncio.run() cancels every task at its end
    and waits for them: a program short enough to end while its pool still opens a connection would never end.
    """

    @classmethod
    async def worker(cls, q: Any) -> None:
        """Run the pool's chores, one after the other."""
        await super().worker(_UntilCancelled(q))  # type: ignore[arg-type]


class _UntilCancelled:
    """The queue of chores as a worker sees it: it has no more for one that was cancelled."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    async def get(self) -> Any:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return await self._queue.get()
