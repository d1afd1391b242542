"""What is costly to find out: read in the background while somebody asks, so that no answer waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from tasklib.errors import TaskLibError

OLDEST_SECONDS: Final = 4.5
"""Nothing older than this is shown."""
NEW_SECONDS: Final = 0.3
"""Nothing older than this is shown as live, for as long as reading takes at most QUICK_SECONDS."""
QUICK_SECONDS: Final = 0.15
PAUSE_SECONDS: Final = 1.5
INTEREST_SECONDS: Final = 600.0
"""For this long after the last request reading goes on, so that the next one need not wait."""

T = TypeVar("T")


class CachedValue(Generic[T]):
    """One value, read anew for every request while that is cheap, else never more than five seconds old."""

    def __init__(
        self,
        read: Callable[[], Awaitable[T]],
        *,
        is_costly: Callable[[T], bool],
        prepare: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._read = read
        self._is_costly = is_costly
        self._prepare = prepare
        self._read_at = self._asked_at = self._forgotten_at = -1e9
        self._took = 0.0
        self._value: T | None = None
        self._costly = False
        self._reading: asyncio.Task[T] | None = None
        self._keeping: asyncio.Task[None] | None = None

    def lasts_seconds(self, *, live: bool) -> float:
        """How old the value that is given may be."""
        if not self._costly:
            return 0.0
        return NEW_SECONDS if live and self._took <= QUICK_SECONDS else OLDEST_SECONDS

    async def get(self, *, live: bool = False) -> T:
        """The value; if it shall be live and can be read in no time, as it is now."""
        self._asked_at = time.monotonic()
        if self._costly and (self._keeping is None or self._keeping.done()):
            self._keeping = asyncio.create_task(self._keep())
        is_young = self._asked_at - self._read_at < self.lasts_seconds(live=live)
        if self._value is not None and is_young and self._read_at >= self._forgotten_at:
            return self._value
        return await self._renew()

    def forget(self) -> None:
        """Read anew for the next who asks; what is being read now does not count."""
        self._forgotten_at, self._reading = time.monotonic(), None

    async def _renew(self) -> T:
        """Read now; those who ask meanwhile share the answer, which is as new as theirs would be begun."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._fill())
        return await asyncio.shield(self._reading)

    async def _fill(self) -> T:
        began = time.monotonic()
        value = await self._read()
        # As old as its beginning: what happened since is not in it.
        self._value, self._read_at, self._costly = value, began, self._is_costly(value)
        self._took = time.monotonic() - began
        return value

    async def _keep(self) -> None:
        while self._costly and time.monotonic() - self._asked_at < INTEREST_SECONDS:
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                if self._prepare is not None:
                    await self._prepare()
                await self._renew()
            except TaskLibError:
                continue  # the database is away; requests say so
