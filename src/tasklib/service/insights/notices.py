"""Notices of the database that tasks came: whoever shows a queue need not wait for its next look."""

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
"""For how long the database is asked for a notice.  On PostgreSQL each costs the commit that sends it: after one nobody
asks for the next before it has looked."""


class Notices(ServicePart):
    """One watcher of one queue; between `open` and `close` it hears of what others commit."""

    def __init__(self, queue: TaskQueue) -> None:
        super().__init__(queue)
        self._instance = uuid4()
        # A name that no task has: of those who know the same names only one is notified.
        self._names = (f"notices for {self._instance}",)
        self._heard = asyncio.Event()
        self._asked_until = -math.inf
        self._unsubscribe: Callable[[], None] | None = None

    async def open(self) -> None:
        """Hear from now on."""
        loop = asyncio.get_running_loop()

        def hear(event: str) -> None:
            kind, _, wanted = event.partition(":")
            mine = kind in ("changed", "woken") or (kind == "new" and wanted in ("", str(self._instance)))
            if mine and not loop.is_closed():
                loop.call_soon_threadsafe(self._heard.set)

        if self._unsubscribe is None:
            self._unsubscribe = await asyncio.to_thread(self.database.subscribe, hear)

    async def heard_within(self, seconds: float) -> bool:
        """True as soon as something may have changed since the last call; False after so long without a notice."""
        if self._asked_until < self.timing.monotonic():
            await self._aask()
            self._asked_until = self.timing.monotonic() + ASKED_SECONDS
        heard = await self.timing.wait(self._heard, seconds)
        if heard:
            self._heard.clear()
            self._asked_until = -math.inf
            await self._astop_asking()
        return heard

    def close(self) -> None:
        """Hear no more."""
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
