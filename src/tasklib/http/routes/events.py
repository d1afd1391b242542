"""Live counts by server-sent events."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from tasklib.errors import TaskLibError
from tasklib.http.admission.audit import AuditedRoute
from tasklib.http.errors import RETRY_AFTER_SECONDS, Refused
from tasklib.http.live.live_stats import BEAT_SECONDS, TROUBLE, Listener, LiveStats, StreamEvent
from tasklib.http.parts import parts_of
from tasklib.http.security.auth import Bearer, Permission, needs, principal_of

router = APIRouter(prefix="/api/events", tags=["events"], route_class=AuditedRoute)

EXAMPLE: dict[str, Any] = {
    "description": "Events named `snapshot`: the numbers now, and again whenever they have changed. `beat` after every "
    "5 seconds without other events, `trouble` in its place while the database does not answer.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}


@router.get("", response_class=StreamingResponse, **needs(Permission.READ, also={200: EXAMPLE}))
async def listen(request: Request) -> StreamingResponse:
    """Live counts as server-sent events.

    Each event is complete, so a reconnecting client misses nothing: the first event has the current counts,
    and its `id` is that of the last one seen if nothing has changed.  Something is sent at least every 5 seconds; a
    client that receives nothing for 12 has lost the service.
    """
    live = parts_of(request).live_stats
    listener = live.admit(principal_of(request).identity)
    if listener is None:
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
        raise Refused(503, "too-many-listeners", "too many event streams are open; try again later", headers=headers)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return _Stream(request, live, listener, headers)


class _Stream(StreamingResponse):
    """The stream; its listener is removed however it ends, also before it has begun."""

    def __init__(self, request: Request, live: LiveStats, listener: Listener, headers: dict[str, str]) -> None:
        super().__init__(_stream(request, live, listener), media_type="text/event-stream", headers=headers)
        self._leave = partial(live.dismiss, listener)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


async def _stream(request: Request, live: LiveStats, listener: Listener) -> AsyncIterator[str]:
    yield "retry: 2000\n\n"
    async for event in live.listen(listener):
        if event is not TROUBLE:
            # Checked between reading the event and sending it: a caller whose token was revoked before gets none of it.
            allowed = await _may_still_listen(request)
            if allowed is None:
                event = TROUBLE
            elif not allowed:
                return
        yield _event(event)


def _event(event: StreamEvent) -> str:
    if event.event != "snapshot":
        # Without a space, which means the same: programs that read lines beginning with `data: ` find snapshots only.
        return f"event: {event.event}\ndata:{event.data}\n\n"
    return f"event: snapshot\nid: {hashlib.sha256(event.data.encode()).hexdigest()[:16]}\ndata: {event.data}\n\n"


async def _may_still_listen(request: Request) -> bool | None:
    """Whether the token it began with is still valid as stored now; None if that cannot be read."""
    parts = parts_of(request)
    identify = parts.identify
    asked = (identify.identify_uncached if isinstance(identify, Bearer) else identify)(request)
    try:
        async with parts.service.timing.timeout(BEAT_SECONDS):
            principal = await asked
    except HTTPException:
        return False
    except (TaskLibError, TimeoutError):
        return None
    return principal is not None and principal.may(Permission.READ)
