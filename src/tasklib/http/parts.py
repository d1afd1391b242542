"""What every route uses: the typed parts of the app, and conditional answers."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from typing import Annotated, Any, Self

from fastapi import Depends, FastAPI, Request, Response
from pydantic import BaseModel

from tasklib.http.live.cache import ErrorCache, GapCache, IdCache, ObjectiveCache, StatsCache
from tasklib.http.live.live_stats import LiveStats
from tasklib.http.security.auth import Auth, Identify, identifier
from tasklib.http.security.refusals import Refusals
from tasklib.http.security.throttle import Throttle
from tasklib.http.trouble_log import TroubleLog
from tasklib.queue import TaskQueue
from tasklib.service.creation import Creation
from tasklib.service.http_workers.recording import Recording
from tasklib.service.http_workers.workers import HttpWorkers
from tasklib.service.service import QueueService

NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "Nothing changed since the ETag given by If-None-Match."}
}


@dataclass(frozen=True, slots=True)
class AgentsMay:
    """What agents may do at `/mcp` besides reading, if their role allows it too."""

    write: bool = False
    """Retry, cancel, pause and resume."""
    submit: tuple[str, ...] = ()
    """Patterns of the types that they may submit."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one app."""

    service: QueueService
    creation: Creation
    workers: HttpWorkers
    recording: Recording
    identify: Identify
    opens_to_this_machine: bool
    takes_tokens: bool
    throttle: Throttle
    refusals: Refusals
    trouble_log: TroubleLog
    counts: StatsCache
    gaps: GapCache
    ids: IdCache
    failures: ErrorCache
    objective_statuses: ObjectiveCache
    live_stats: LiveStats
    stopping: threading.Event
    """Set when the server stops: it ends event streams and waiting claims."""
    agents: AgentsMay

    @classmethod
    def of(cls, queue: TaskQueue, auth: Auth, agents: AgentsMay | None = None) -> Self:
        """The parts of an app for this queue and this way of authentication."""
        service, stopping = QueueService(queue), threading.Event()
        counts = StatsCache(service.statistics)
        return cls(
            service=service,
            creation=Creation(queue),
            workers=HttpWorkers(queue, stopping),
            recording=Recording(queue),
            identify=identifier(service.tokens, auth),
            opens_to_this_machine=auth == "local",
            takes_tokens=auth in ("tokens", "local"),
            throttle=Throttle(queue.config.submit_rate_limit, queue.timing),
            refusals=Refusals(service.audit_log),
            trouble_log=TroubleLog(queue.timing),
            counts=counts,
            gaps=GapCache(service),
            ids=IdCache(service),
            failures=ErrorCache(service.error_groups),
            objective_statuses=ObjectiveCache(service.objectives),
            live_stats=LiveStats(service.statistics, counts, stopping),
            stopping=stopping,
            agents=agents or AgentsMay(),
        )


def parts_of(request: Request) -> Parts:
    """The parts of the app that handles the request."""
    return parts_of_app(request.app)


def parts_of_app(app: FastAPI) -> Parts:
    """The parts of an app that `create_app` has made."""
    parts: Parts = app.state.parts
    return parts


def _service(request: Request) -> QueueService:
    return parts_of(request).service


def _counts(request: Request) -> StatsCache:
    return parts_of(request).counts


Service = Annotated[QueueService, Depends(_service)]
Counts = Annotated[StatsCache, Depends(_counts)]


def conditional(request: Request, answer: BaseModel) -> Response:
    """The answer with its ETag; 304 without a body if the client has this version."""
    body = answer.model_dump_json(by_alias=True).encode()
    tag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    known = [each.strip() for each in request.headers.get("if-none-match", "").split(",")]
    if tag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)
