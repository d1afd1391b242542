"""What every route works with: the queue behind the app, and answers that a client may already have."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from pydantic import BaseModel

from tasklib.http.live.stats_cache import Counts as _Counts
from tasklib.http.live.stats_cache import Gaps as _Gaps
from tasklib.queue import TaskQueue
from tasklib.service.service import QueueService

NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "Nothing changed since the ETag given by If-None-Match."}
}


def _manage(request: Request) -> QueueService:
    manage: QueueService = request.app.state.manage
    return manage


def _queue(request: Request) -> TaskQueue:
    return _manage(request).queue


def _counts(request: Request) -> _Counts:
    counts: _Counts = request.app.state.counts
    return counts


def _gaps(request: Request) -> _Gaps:
    gaps: _Gaps = request.app.state.gaps
    return gaps


Service = Annotated[QueueService, Depends(_manage)]
Counts = Annotated[_Counts, Depends(_counts)]
Gaps = Annotated[_Gaps, Depends(_gaps)]
Queue = Annotated[TaskQueue, Depends(_queue)]


def conditional(request: Request, answer: BaseModel) -> Response:
    """The answer with its ETag; empty, as 304, if the client has just that."""
    body = answer.model_dump_json(by_alias=True).encode()
    tag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    known = [each.strip() for each in request.headers.get("if-none-match", "").split(",")]
    if tag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)
