"""Live counts: one reader of the database for all event streams."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Literal

from tasklib.errors import TaskLibError
from tasklib.http.live.cache import StatsCache
from tasklib.http.schemas.fields import Answer
from tasklib.http.schemas.tasks import Stats
from tasklib.service.insights.notices import Notices
from tasklib.service.statistics import Statistics

logger = logging.getLogger("tasklib.http")

INTERVAL_SECONDS: Final = 0.5
"""Half of the second in which a page shows what has changed: the other half is for reading and drawing it.  PostgreSQL
notifies only of submissions, because a notification slows the commit that sends it."""
GAP_SECONDS: Final = 0.2
"""The shortest time between two readings, however many notifications come."""
BEAT_SECONDS: Final = 5.0
"""After this long without an event a beat is sent, and the caller's permission is checked again: a reader that receives
nothing for more than twice as long has lost the service."""
SLOW_SECONDS: Final = 10.0
"""If a reading takes longer, the database counts as unavailable."""
MAX_LISTENERS: Final = 100
"""Streams in all; a new one of a caller with few replaces the oldest of the caller with the most."""


class Snapshot(Answer):
    """The queue at a glance."""

    stats: Stats
    paused: bool
    workers_alive: int


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a stream."""

    event: Literal["snapshot", "beat", "trouble"]
    data: str = "{}"


BEAT: Final = StreamEvent("beat")
"""Nothing has changed, and the database answers."""
TROUBLE: Final = StreamEvent("trouble", '{"database": "unavailable"}')
"""The database does not answer: the counts sent before may be out of date."""


class Listener:
    """One stream: its caller, and the latest event for it."""

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self._events: asyncio.Queue[StreamEvent | None] = asyncio.Queue(1)

    def send(self, event: StreamEvent | None) -> None:
        """Queue the latest event, in place of an older one that was not taken; None ends the stream."""
        if self._events.full():
            self._events.get_nowait()
        self._events.put_nowait(event)

    def wake(self) -> None:
        """Wake it by a beat, unless an event is queued."""
        if not self._events.full():
            self._events.put_nowait(BEAT)

    async def next(self) -> StreamEvent | None:
        """The next event."""
        return await self._events.get()


class LiveStats:
    """Reads the counts while a stream is open, when the database notifies and twice a second anyway, and sends them to
    all streams when they change."""

    def __init__(self, statistics: Statistics, counts: StatsCache, stopping: threading.Event) -> None:
        self._notices = Notices(statistics.queue)
        self._statistics = statistics
        self._timing = statistics.timing
        self._counts = counts
        self._stopping = stopping
        self._listeners: dict[Listener, None] = {}  # in the order in which they came
        self._reader: asyncio.Task[None] | None = None
        self._trouble = False
        self._asked_at: float | None = None

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

    async def listen(self, listener: Listener) -> AsyncIterator[StreamEvent]:
        """The counts now and whenever they have changed; a beat when nothing has, and trouble while they are unknown.

        Ends when the service stops, or when the listener had to make room for another.
        """
        yield await self._first()
        if self._reader is None:
            self._reader = asyncio.create_task(self._watch())
        while True:
            try:
                async with self._timing.timeout(BEAT_SECONDS):
                    event = await listener.next()
            except TimeoutError:
                event = BEAT
            if event is None:
                return
            yield TROUBLE if event is BEAT and self.is_troubled else event

    @property
    def is_troubled(self) -> bool:
        """Whether the database does not answer."""
        return self._trouble or (
            self._asked_at is not None and self._timing.monotonic() - self._asked_at > SLOW_SECONDS
        )

    def dismiss(self, listener: Listener) -> None:
        """Remove a listener; without any, reading stops."""
        if self._listeners.pop(listener, self) is self:
            return
        if not self._listeners and self._reader is not None:
            self._reader.cancel()
            self._reader = None
            self._notices.close()

    def check_tokens(self) -> None:
        """Make every stream check now whether its token is still valid."""
        for listener in self._listeners:
            listener.wake()

    async def _first(self) -> StreamEvent:
        """The first event for a new listener, whether or not the database answers."""
        try:
            async with self._timing.timeout(BEAT_SECONDS):
                return StreamEvent("snapshot", await self._read())
        except (TaskLibError, TimeoutError) as error:
            self._note_trouble(error if str(error) else "timed out")
            return TROUBLE

    async def _watch(self) -> None:
        last = ""
        while not self._stopping.is_set():
            await self._timing.sleep(GAP_SECONDS)
            self._asked_at = self._timing.monotonic()
            try:
                await self._until_changed()
                now = await self._read()
            except TaskLibError as error:
                self._note_trouble(error)
                last = ""  # what is read next is sent, even if it is what was read before
                continue
            finally:
                self._asked_at = None
            self._trouble = False
            if now != last:
                last = now
                self._send(StreamEvent("snapshot", now))
        self._reader = None
        self._notices.close()
        self._send(None)

    async def _until_changed(self) -> None:
        """Return when something may have changed, and after INTERVAL_SECONDS in any case."""
        seconds = INTERVAL_SECONDS - GAP_SECONDS
        try:
            await self._notices.open()
            await self._notices.notified_within(seconds)
        except TaskLibError:
            # A role that may only read cannot ask for notifications; whether the database answers, the reading shows.
            await self._timing.sleep(seconds)

    def _note_trouble(self, error: Exception | str) -> None:
        if not self._trouble:
            logger.warning("the database does not answer, and every open page says so: %s", error)
            self._trouble = True
            self._send(TROUBLE)

    def _send(self, event: StreamEvent | None) -> None:
        for listener in self._listeners:
            listener.send(event)

    async def _read(self) -> str:
        seen = await self._statistics.aoverview(await self._counts.stats(live=True))
        paused = any(pause.name is None for pause in seen.pauses)
        stats = await self._counts.beside(lambda: Stats.counted(seen.stats, self._counts.live_max_age_seconds))
        snapshot = Snapshot(stats=stats, paused=paused, workers_alive=seen.workers_alive)
        return snapshot.model_dump_json(by_alias=True)
