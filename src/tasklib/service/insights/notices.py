"""Notifications of the database that tasks have changed, so that a live page need not wait for its next poll."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final
from uuid import uuid4

from tasklib.queue import TaskQueue
from tasklib.queue.sync_async import operation
from tasklib.service.base import ServicePart
from tasklib.storage.operations import workers
from tasklib.storage.statement import Operation

ASKED_SECONDS: Final = 10.0
"""For how long one request for notifications holds.  On PostgreSQL a notification slows the commit that sends it, so
the next is requested only after the last has led to a look."""


class Notices(ServicePart):
    """Subscribes to one queue; between `open` and `close` it is notified of what others commit."""

    def __init__(self, queue: TaskQueue) -> None:
        super().__init__(queue)
        self._instance = uuid4()
        # A name that no task has: of the workers with the same names only one is notified.
        self._names = (f"notices for {self._instance}",)
        self._notified = asyncio.Event()
        self._asked_until = -math.inf
        self._unsubscribe: Callable[[], None] | None = None

    async def open(self) -> None:
        """Subscribe."""
        loop = asyncio.get_running_loop()

        def listen(event: str) -> None:
            kind, _, wanted = event.partition(":")
            mine = kind in ("changed", "woken") or (kind == "new" and wanted in ("", str(self._instance)))
            if mine and not loop.is_closed():
                loop.call_soon_threadsafe(self._notified.set)

        if self._unsubscribe is None:
            self._unsubscribe = await asyncio.to_thread(self.database.subscribe, listen)

    async def notified_within(self, seconds: float) -> bool:
        """True as soon as something may have changed since the last call; False if no notification came in time."""
        if self._asked_until < self.timing.monotonic():
            await self._aask()
            self._asked_until = self.timing.monotonic() + ASKED_SECONDS
        notified = await self.timing.wait(self._notified, seconds)
        if notified:
            self._notified.clear()
            self._asked_until = -math.inf
            await self._astop_asking()
        return notified

    def close(self) -> None:
        """Unsubscribe."""
        stop, self._unsubscribe = self._unsubscribe, None
        if stop is not None:
            stop()

    @operation
    def _ask(self) -> Operation[None]:
        yield from workers.declare_idle(self._instance, self._names, ASKED_SECONDS)

    _aask = _ask.as_async

    @operation
    def _stop_asking(self) -> Operation[None]:
        yield from workers.declare_busy(self._instance, self._names)

    _astop_asking = _stop_asking.as_async
