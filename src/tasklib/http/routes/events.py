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
from tasklib.http.live.live_stats import Listener, LiveStats
from tasklib.http.parts import parts_of
from tasklib.http.security.auth import Bearer, Permission, needs, principal_of

router = APIRouter(prefix="/api/events", tags=["events"], route_class=AuditedRoute)

EXAMPLE: dict[str, Any] = {
    "description": "Events named `snapshot`: the numbers now, and again whenever they have changed.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}


@router.get("", response_class=StreamingResponse, **needs(Permission.READ, also={200: EXAMPLE}))
async def listen(request: Request) -> StreamingResponse:
    """Live counts as server-sent events.

    Each event is complete, so a reconnecting client misses nothing: the first event has the current counts,
    and its `id` is that of the last one seen if nothing has changed.
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
    async for snapshot in live.listen(listener):
        # Checked between reading the news and sending it: a caller that was shut out before gets none of it.
        if not await _may_still_listen(request):
            return
        if snapshot is None:
            yield ": nothing new\n\n"
        else:
            yield f"event: snapshot\nid: {_id(snapshot)}\ndata: {snapshot}\n\n"


def _id(snapshot: str) -> str:
    return hashlib.sha256(snapshot.encode()).hexdigest()[:16]


async def _may_still_listen(request: Request) -> bool:
    """Whether the token it began with is still valid as stored now; if that cannot be read, it is not."""
    identify = parts_of(request).identify
    try:
        principal = await (identify.identify_uncached if isinstance(identify, Bearer) else identify)(request)
    except (HTTPException, TaskLibError):
        return False
    return principal is not None and principal.may(Permission.READ)
