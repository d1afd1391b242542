"""Live numbers by server-sent events: one reader of the database for all who listen."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from tasklib.errors import TaskLibError
from tasklib.http.errors import RETRY_AFTER_SECONDS, Refused, problems
from tasklib.http.live.stats_cache import Counts
from tasklib.http.schemas.fields import Answer
from tasklib.http.schemas.tasks import Stats
from tasklib.http.security.audit import AuditedRoute
from tasklib.http.security.auth import GRANTS, Bearer, Permission, needs, principal_of
from tasklib.service.service import QueueService

INTERVAL_SECONDS: Final = 0.5
"""Half of the second in which a page shows what has changed: the other half is for reading and drawing it."""
QUIET_SECONDS: Final = 10.0
"""After this long without news a comment is sent, and whoever listens is checked anew."""
MAX_LISTENERS: Final = 100
"""In all; who has the most of them makes room for whoever has fewer."""

router = APIRouter(prefix="/api/events", tags=["events"], route_class=AuditedRoute)


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

    def tell(self, news: str | None) -> None:
        """Give it the latest, in the place of what it has not taken yet; None ends it."""
        if self._news.full():
            self._news.get_nowait()
        self._news.put_nowait(news)

    def stir(self) -> None:
        """Wake it without news, unless it has some that it has not taken yet."""
        if not self._news.full():
            self._news.put_nowait("")

    async def hear(self) -> str | None:
        """The next news."""
        return await self._news.get()


class Pulse:
    """Reads the numbers twice a second while somebody listens, and tells everybody when they have changed."""

    def __init__(self, manage: QueueService, counts: Counts, stopping: threading.Event) -> None:
        self._manage = manage
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
            oldest.tell(None)
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
                told = await asyncio.wait_for(listener.hear(), QUIET_SECONDS)
            except TimeoutError:
                yield None
            else:
                if told is None:
                    return
                yield told or None

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
            listener.stir()

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
            listener.tell(news)

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
    listener = pulse.admit(principal_of(request).identity)
    if listener is None:
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
        raise Refused(503, "too-many-listeners", "too many listen already; try again later", headers=headers)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return _Stream(request, pulse, listener, headers)


class _Stream(StreamingResponse):
    """The answer that goes on; its place is free again however it ends, also before it has begun."""

    def __init__(self, request: Request, pulse: Pulse, listener: Listener, headers: dict[str, str]) -> None:
        super().__init__(_stream(request, pulse, listener), media_type="text/event-stream", headers=headers)
        self._leave = partial(pulse.dismiss, listener)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


async def _stream(request: Request, pulse: Pulse, listener: Listener) -> AsyncIterator[str]:
    yield "retry: 2000\n\n"
    async for snapshot in pulse.listen(listener):
        # Asked after the news and before it is sent, so that nothing reaches who was shut out before it happened.
        if not await _may_still_listen(request):
            return
        if snapshot is None:
            yield ": nothing new\n\n"
        else:
            yield f"event: snapshot\nid: {_id(snapshot)}\ndata: {snapshot}\n\n"


def _id(snapshot: str) -> str:
    return hashlib.sha256(snapshot.encode()).hexdigest()[:16]


async def _may_still_listen(request: Request) -> bool:
    """Whether the token with which it began is still good by what is stored now; in doubt it is not."""
    identify = request.app.state.identify
    try:
        principal = await (identify.identify_anew if isinstance(identify, Bearer) else identify)(request)
    except (HTTPException, TaskLibError):
        return False
    return principal is not None and Permission.READ in GRANTS[principal.role]
