"""Live counts: one reader of the database for all event streams."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from tasklib.errors import TaskLibError
from tasklib.http.live.cache import StatsCache
from tasklib.http.schemas.fields import Answer
from tasklib.http.schemas.tasks import Stats
from tasklib.service.statistics import Statistics

INTERVAL_SECONDS: Final = 0.5
"""Half of the second in which a page shows what has changed: the other half is for reading and drawing it."""
QUIET_SECONDS: Final = 10.0
"""After this long without news a comment is sent, and the caller's permission is checked again."""
MAX_LISTENERS: Final = 100
"""In all; the caller with the most streams loses one to a caller with fewer."""


class Snapshot(Answer):
    """The queue at a glance."""

    stats: Stats
    paused: bool
    workers_alive: int


class Listener:
    """One stream: whose it is, and the latest news for it."""

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self._news: asyncio.Queue[str | None] = asyncio.Queue(1)

    def send(self, news: str | None) -> None:
        """Queue the latest news, in place of older news that was not taken; None ends the stream."""
        if self._news.full():
            self._news.get_nowait()
        self._news.put_nowait(news)

    def wake(self) -> None:
        """Wake it without news, unless some is queued."""
        if not self._news.full():
            self._news.put_nowait("")

    async def next(self) -> str | None:
        """The next news."""
        return await self._news.get()


class LiveStats:
    """Reads the counts twice a second while a stream is open, and sends them to all streams when they change."""

    def __init__(self, statistics: Statistics, counts: StatsCache, stopping: threading.Event) -> None:
        self._statistics = statistics
        self._counts = counts
        self._stopping = stopping
        self._listeners: dict[Listener, None] = {}  # in the order in which they came
        self._reader: asyncio.Task[None] | None = None

    def admit(self, caller: str) -> Listener | None:
        """A new listener; None if there are too many and no caller has two more than this one."""
        if len(self._listeners) >= MAX_LISTENERS:
            shares = Counter(each.caller for each in self._listeners)
            most, count = shares.most_common(1)[0]
            if count < shares[caller] + 2:
                return None
            oldest = next(each for each in self._listeners if each.caller == most)
            self._listeners.pop(oldest)
            oldest.send(None)
        listener = Listener(caller)
        self._listeners[listener] = None
        return listener

    async def listen(self, listener: Listener) -> AsyncIterator[str | None]:
        """The counts now, and whenever they have changed; None when nothing has changed for a while.

        Ends when the service stops, or when the listener had to make room for another.
        """
        yield await self._read()
        if self._reader is None:
            self._reader = asyncio.create_task(self._watch())
        while True:
            try:
                news = await asyncio.wait_for(listener.next(), QUIET_SECONDS)
            except TimeoutError:
                yield None
            else:
                if news is None:
                    return
                yield news or None

    def dismiss(self, listener: Listener) -> None:
        """Remove a listener; without any, reading stops."""
        if self._listeners.pop(listener, self) is self:
            return
        if not self._listeners and self._reader is not None:
            self._reader.cancel()
            self._reader = None

    def check_tokens(self) -> None:
        """Make every stream check now whether its token is still valid."""
        for listener in self._listeners:
            listener.wake()

    async def _watch(self) -> None:
        last = ""
        while not self._stopping.is_set():
            await asyncio.sleep(INTERVAL_SECONDS)
            try:
                now = await self._read()
            except TaskLibError:
                continue  # the database is unavailable; read again at the next interval
            if now != last:
                last = now
                self._send(now)
        self._reader = None
        self._send(None)

    def _send(self, news: str | None) -> None:
        for listener in self._listeners:
            listener.send(news)

    async def _read(self) -> str:
        seen = await self._statistics.aoverview(await self._counts.stats(live=True))
        paused = any(pause.name is None for pause in seen.pauses)
        stats = Stats.counted(seen.stats, self._counts.live_max_age_seconds)
        snapshot = Snapshot(stats=stats, paused=paused, workers_alive=seen.workers_alive)
        return snapshot.model_dump_json(by_alias=True)
