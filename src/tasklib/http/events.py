"""Live numbers by server-sent events: one reader of the database for all who listen."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from tasklib.errors import TaskLibError
from tasklib.http.audit import AuditedRoute
from tasklib.http.auth import GRANTS, Permission, needs
from tasklib.http.counts import Counts
from tasklib.http.errors import RETRY_AFTER_SECONDS, Refused, problems
from tasklib.http.fields import Answer
from tasklib.http.schemas import Stats
from tasklib.manage import Manage

INTERVAL_SECONDS: Final = 0.5
"""Half of the second in which a page shows what has changed: the other half is for reading and drawing it."""
QUIET_SECONDS: Final = 10.0
"""After this long without news a comment is sent, and whoever listens is checked anew."""
MAX_LISTENERS: Final = 100

router = APIRouter(prefix="/api/events", tags=["events"], route_class=AuditedRoute)


class Snapshot(Answer):
    """The queue at a glance."""

    stats: Stats
    paused: bool
    workers_alive: int


class Pulse:
    """Reads the numbers twice a second while somebody listens, and tells everybody when they have changed."""

    def __init__(self, manage: Manage, counts: Counts, stopping: threading.Event) -> None:
        self._manage = manage
        self._counts = counts
        self._stopping = stopping
        self._listeners: set[asyncio.Queue[str | None]] = set()
        self._reader: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether nobody more may listen."""
        return len(self._listeners) >= MAX_LISTENERS

    async def listen(self) -> AsyncIterator[str | None]:
        """The numbers now, and then whenever they have changed; None when nothing has for a while.

        Ends when the service stops.
        """
        news: asyncio.Queue[str | None] = asyncio.Queue(1)
        self._listeners.add(news)
        try:
            yield await self._read()
            if self._reader is None:
                self._reader = asyncio.create_task(self._watch())
            while True:
                try:
                    told = await asyncio.wait_for(news.get(), QUIET_SECONDS)
                except TimeoutError:
                    yield None
                else:
                    if told is None:
                        return
                    yield told
        finally:
            self._listeners.discard(news)
            if not self._listeners and self._reader is not None:
                self._reader.cancel()
                self._reader = None

    async def _watch(self) -> None:
        last = ""
        while not self._stopping.is_set():
            await asyncio.sleep(INTERVAL_SECONDS)
            try:
                now = await self._read()
            except TaskLibError:
                continue  # the database is away; the next reading tells
            if now != last:
                last = now
                self._tell(now)
        self._reader = None
        self._tell(None)

    def _tell(self, news: str | None) -> None:
        for listener in self._listeners:
            if listener.full():  # who is slow gets the latest only
                listener.get_nowait()
            listener.put_nowait(news)

    async def _read(self) -> str:
        seen = await self._manage.aoverview(await self._counts.stats(live=True))
        paused = any(pause.name is None for pause in seen.pauses)
        stats = Stats.of(seen.stats, self._counts.live_max_age_seconds)
        snapshot = Snapshot(stats=stats, paused=paused, workers_alive=seen.workers_alive)
        return snapshot.model_dump_json(by_alias=True)


EXAMPLE: dict[str, Any] = {
    "description": "Events named `snapshot`: the numbers now, and again whenever they have changed.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}


@router.get(
    "",
    response_class=StreamingResponse,
    responses={200: EXAMPLE, **problems(401, 403, 503)},
    **needs(Permission.READ),
)
async def listen(request: Request) -> StreamingResponse:
    """Live numbers as server-sent events.

    Each event is whole, so a lost connection loses nothing: the first event after it is what holds now, and its `id` is
    that of the last one seen if nothing has changed.
    """
    pulse: Pulse = request.app.state.pulse
    if pulse.is_full:
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
        raise Refused(503, "too-many-listeners", "too many listen already; try again later", headers=headers)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_stream(request, pulse), media_type="text/event-stream", headers=headers)


async def _stream(request: Request, pulse: Pulse) -> AsyncIterator[str]:
    yield "retry: 2000\n\n"
    async for snapshot in pulse.listen():
        if snapshot is not None:
            yield f"event: snapshot\nid: {_id(snapshot)}\ndata: {snapshot}\n\n"
        elif await _may_still_listen(request):
            yield ": nothing new\n\n"
        else:
            return


def _id(snapshot: str) -> str:
    return hashlib.sha256(snapshot.encode()).hexdigest()[:16]


async def _may_still_listen(request: Request) -> bool:
    """Whether the token with which it began is still good."""
    principal = await request.app.state.identify(request)
    return principal is not None and Permission.READ in GRANTS[principal.role]
