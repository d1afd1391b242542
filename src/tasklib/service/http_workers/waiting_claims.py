"""Claims over HTTP that wait for work: the database notifies them, as it notifies every other worker."""

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
"""How often a waiting claim looks for work without a notification: one that is lost delays it by this much."""
CLIENT_LOOK_SECONDS: Final = 0.5
"""How often it checks whether the service stops or its client is gone, which takes no query."""


@dataclass(eq=False)
class Waiting:
    """A claim that waits for work."""

    instance: UUID
    names: Sequence[str]
    notified: asyncio.Event = field(default_factory=asyncio.Event)


class WaitingClaims(ServicePart):
    """The waiting claims of one service, and its one subscription to notifications of the database."""

    def __init__(self, queue: TaskQueue, stopping: threading.Event) -> None:
        super().__init__(queue)
        self._stopping = stopping
        self._waiting: dict[Waiting, None] = {}  # in the order in which they came
        self._unsubscribe: Callable[[], None] | None = None
        self._subscribing = asyncio.Lock()

    @property
    def is_anybody_waiting(self) -> bool:
        """Whether some claim waits and is notified of new tasks."""
        return self._unsubscribe is not None and bool(self._waiting)

    async def join(self, claim: Waiting, seconds: float) -> None:
        """Notify the claim from now on.  It must look once more after this: for earlier tasks there is no
        notification."""
        claim.notified.clear()
        self._waiting[claim] = None
        async with self._subscribing:
            if self._unsubscribe is None:
                self._unsubscribe = await asyncio.to_thread(self.database.subscribe, self._listener())
        # No longer than this claim waits: a notification for one that is gone reaches nobody else.
        await self._adeclare_idle(claim, seconds)

    async def wait(self, claim: Waiting, seconds: float, is_gone: Callable[[], Awaitable[bool]]) -> None:
        """Return when the claim is notified, its time is over, its client is gone, or the service stops."""
        deadline = self.timing.monotonic() + min(seconds, LOOK_SECONDS)
        while (left := deadline - self.timing.monotonic()) > 0 and not self._stopping.is_set():
            if await self.timing.wait(claim.notified, min(left, CLIENT_LOOK_SECONDS)) or await is_gone():
                return

    async def leave(self, claim: Waiting) -> None:
        """Notify the claim no more; a notification that it has not used goes to another worker of the same names."""
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

        def listen(event: str) -> None:
            if not event.startswith(("done", "cancel")) and not loop.is_closed():
                loop.call_soon_threadsafe(self._notify, event)

        return listen

    def _notify(self, event: str) -> None:
        """Notify the claims that an event is for: `new:<instance>` is for one instance, everything else for all."""
        _, _, wanted = event.partition(":")
        for claim in self._waiting:
            if wanted in ("", str(claim.instance)):
                claim.notified.set()
