"""The app as a whole: routes, who may use them, and how errors end."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.openapi.utils import get_openapi

import tasklib
from tasklib.errors import ConfigurationError
from tasklib.http import errors
from tasklib.http.create import Creator
from tasklib.http.errors import Problem
from tasklib.http.fast_create import FastCreate
from tasklib.http.live import events
from tasklib.http.live.stats_cache import Counts, Gaps
from tasklib.http.live.timeouts import TimeoutService
from tasklib.http.live.waiting_claims import WaitingClaims
from tasklib.http.routes import (
    bulk,
    dashboard,
    error_groups,
    health,
    limits,
    metrics,
    schedules,
    series,
    tasks,
    tokens,
    types,
    workers,
)
from tasklib.http.security import audit, session
from tasklib.http.security.auth import Auth, Permission, authorize, identifier, needs, refuse_repeated
from tasklib.http.security.local import LOOPBACK_HOSTS, foreign_hosts
from tasklib.http.security.refusals import Refusals
from tasklib.http.security.request_guard import RequestGuard
from tasklib.http.security.throttle import Throttle
from tasklib.queue import TaskQueue
from tasklib.service.service import QueueService

BODY_BYTES_BESIDE_PAYLOAD = 64 * 1024


def create_app(queue: TaskQueue, *, auth: Auth, hosts: Iterable[str] | None = None) -> FastAPI:
    """The HTTP service of a queue, for any ASGI server or for mounting in another app.

    `hosts` are the names it answers for; with `auth="local"` those of this machine, and no others.
    """
    if auth == "local":
        hosts = _only_this_machine(hosts)
    app = FastAPI(
        title="tasklib",
        version=tasklib.__version__,
        summary="Durable background tasks.",
        openapi_url=None,  # served below, behind the same check as everything else
        dependencies=[Depends(authorize), Depends(refuse_repeated)],
    )
    app.state.manage = QueueService(queue)
    app.state.identify = identifier(queue, auth)
    app.state.opens_to_this_machine = auth == "local"
    app.state.takes_tokens = auth in ("tokens", "local")
    app.state.counts = Counts(queue)
    app.state.gaps = Gaps(queue)
    app.state.failures = error_groups.Failures(queue)
    app.state.stopping = threading.Event()
    app.state.pulse = events.Pulse(app.state.manage, app.state.counts, app.state.stopping)
    app.state.creator = Creator(queue)
    app.state.throttle = Throttle(queue.config.submit_rate_limit)
    app.state.refusals = Refusals(queue)
    app.state.caretaker = workers.Caretaker(queue)
    app.state.on_call = WaitingClaims(queue, app.state.stopping)
    app.state.overtime = TimeoutService(queue, app.state.caretaker.meter, app.state.stopping)
    app.include_router(tasks.creating_router)
    for part in (
        health,
        bulk,
        limits,
        tasks,
        schedules,
        types,
        workers,
        events,
        metrics,
        series,
        audit,
        session,
        tokens,
        error_groups,
    ):
        app.include_router(part.router)
    app.include_router(dashboard.router)
    app.include_router(tasks.plain_router)
    app.include_router(workers.ending_router)
    app.add_api_route(
        "/openapi.json", _serve_description, methods=["GET"], include_in_schema=False, **needs(Permission.READ)
    )
    app.openapi = lambda: _describe(app)  # type: ignore[method-assign]
    errors.install(app)
    limit = queue.config.max_payload_bytes + BODY_BYTES_BESIDE_PAYLOAD
    app.add_middleware(FastCreate)
    app.add_middleware(RequestGuard, max_body_bytes=limit, hosts=hosts)
    return app


def _only_this_machine(hosts: Iterable[str] | None) -> Iterable[str]:
    """The names of this machine that were given, or all of them; who answers for others needs tokens."""
    if hosts is None:
        return LOOPBACK_HOSTS
    chosen = list(hosts)
    foreign = foreign_hosts(chosen)
    if foreign:
        raise ConfigurationError(
            f"auth='local' lets in whoever is on this machine, so it cannot answer for {', '.join(foreign)} as well: "
            "others come through a proxy by that name; use auth='tokens'"
        )
    return chosen


async def _serve_description(request: Request) -> dict[str, Any]:
    """The description of this interface."""
    description: dict[str, Any] = request.app.openapi()
    return description


def _describe(app: FastAPI) -> dict[str, Any]:
    """OpenAPI 3.1 of every route; what is wrong with a request is a Problem with status 400."""
    if app.openapi_schema:
        return app.openapi_schema
    description = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
    for path in description["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    components = description.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = Problem.model_json_schema()
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "Made by `tasklib token create`."}
    }
    app.openapi_schema = description
    return description
