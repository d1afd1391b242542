"""Claims that wait: woken by the database when there is work, like every other worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tasklib.queue import TaskQueue
from tasklib.queue.sync_async import operation
from tasklib.service.base import ServicePart
from tasklib.storage.operations import workers
from tasklib.storage.statement import Operation

LOOK_SECONDS: Final = 2.0
"""How often a claim that waits looks although nobody has called: a call that got lost costs this."""
GLANCE_SECONDS: Final = 0.5
"""How often it looks whether the service stops or its client is gone; the database is not asked for that."""


@dataclass(eq=False)
class Waiting:
    """One claim that waits."""

    instance: UUID
    names: Sequence[str]
    called: asyncio.Event = field(default_factory=asyncio.Event)


class WaitingClaims(ServicePart):
    """The claims of one service that wait for work, and its one subscription to the database's notices."""

    def __init__(self, queue: TaskQueue, stopping: threading.Event) -> None:
        super().__init__(queue)
        self._stopping = stopping
        self._waiting: dict[Waiting, None] = {}  # in the order in which they came
        self._unsubscribe: Callable[[], None] | None = None
        self._subscribing = asyncio.Lock()

    @property
    def is_anybody_waiting(self) -> bool:
        """Whether some claim waits, and will hear of new tasks."""
        return self._unsubscribe is not None and bool(self._waiting)

    async def come(self, claim: Waiting, seconds: float) -> None:
        """Be called from now on.  Look once more after this: what came before it is announced to nobody."""
        claim.called.clear()
        self._waiting[claim] = None
        async with self._subscribing:
            if self._unsubscribe is None:
                self._unsubscribe = await asyncio.to_thread(self.database.subscribe, self._listener())
        # Not longer than this claim waits: a call to one that is gone wakes nobody else.
        await self._adeclare_idle(claim, seconds)

    async def wait(self, claim: Waiting, seconds: float, is_gone: Callable[[], Awaitable[bool]]) -> None:
        """Return when called, when the time is over, or when there is nobody left to answer."""
        deadline = self.timing.monotonic() + min(seconds, LOOK_SECONDS)
        while (left := deadline - self.timing.monotonic()) > 0 and not self._stopping.is_set():
            if await self.timing.wait(claim.called, min(left, GLANCE_SECONDS)) or await is_gone():
                return

    async def leave(self, claim: Waiting) -> None:
        """Be called no more; another that knows the same names is called instead."""
        self._waiting.pop(claim, None)
        if not self._waiting and self._unsubscribe is not None:
            stop, self._unsubscribe = self._unsubscribe, None
            stop()
        if not any(other.instance == claim.instance for other in self._waiting):
            await self._adeclare_busy(claim)

    @operation
    def _declare_idle(self, claim: Waiting, seconds: float) -> Operation[None]:
        yield from workers.declare_idle(claim.instance, claim.names, seconds)

    _adeclare_idle = _declare_idle.as_async

    @operation
    def _declare_busy(self, claim: Waiting) -> Operation[None]:
        yield from workers.declare_busy(claim.instance, claim.names)

    _adeclare_busy = _declare_busy.as_async

    def _listener(self) -> Callable[[str], None]:
        loop = asyncio.get_running_loop()

        def hear(event: str) -> None:
            if not event.startswith(("done", "cancel")) and not loop.is_closed():
                loop.call_soon_threadsafe(self._call, event)

        return hear

    def _call(self, event: str) -> None:
        """`new:<instance>` is for one, everything else for all."""
        _, _, wanted = event.partition(":")
        for claim in self._waiting:
            if wanted in ("", str(claim.instance)):
                claim.called.set()
