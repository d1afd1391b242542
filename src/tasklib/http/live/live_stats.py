"""Live numbers: one reader of the database for everybody who listens."""

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
"""After this long without news a comment is sent, and whoever listens is checked anew."""
MAX_LISTENERS: Final = 100
"""In all; who has the most of them makes room for whoever has fewer."""


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
        """Give it the latest, in the place of what it has not taken yet; None ends it."""
        if self._news.full():
            self._news.get_nowait()
        self._news.put_nowait(news)

    def wake(self) -> None:
        """Wake it without news, unless it has some that it has not taken yet."""
        if not self._news.full():
            self._news.put_nowait("")

    async def next(self) -> str | None:
        """The next news."""
        return await self._news.get()


class LiveStats:
    """Reads the numbers twice a second while somebody listens, and sends them to everybody when they have changed."""

    def __init__(self, statistics: Statistics, counts: StatsCache, stopping: threading.Event) -> None:
        self._statistics = statistics
        self._counts = counts
        self._stopping = stopping
        self._listeners: dict[Listener, None] = {}  # in the order in which they came
        self._reader: asyncio.Task[None] | None = None

    def admit(self, caller: str) -> Listener | None:
        """A place to listen; None if all are taken and nobody has two more of them than this caller."""
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
        """The numbers now, and then whenever they have changed; None when nothing has for a while.

        Ends when the service stops, or when the place is given to another.
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
        """Give the place back; the last one to leave ends the reading."""
        if self._listeners.pop(listener, self) is self:
            return
        if not self._listeners and self._reader is not None:
            self._reader.cancel()
            self._reader = None

    def check_anew(self) -> None:
        """Let every stream look now whether its token is still good."""
        for listener in self._listeners:
            listener.wake()

    async def _watch(self) -> None:
        last = ""
        while not self._stopping.is_set():
            await asyncio.sleep(INTERVAL_SECONDS)
            try:
                now = await self._read()
            except TaskLibError:
                continue  # the database is away; the next reading will do
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
