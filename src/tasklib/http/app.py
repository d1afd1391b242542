"""The app as a whole: routes, who may use them, and how errors end."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.openapi.utils import get_openapi

import tasklib
from tasklib.errors import ConfigurationError
from tasklib.http import (
    audit,
    bulk,
    control,
    dashboard,
    errors,
    events,
    groups,
    health,
    metrics,
    schedules,
    series,
    session,
    tasks,
    token_routes,
    types,
    workers,
)
from tasklib.http.auth import Auth, Permission, authorize, identifier, needs, refuse_repeated
from tasklib.http.counts import Counts, Gaps
from tasklib.http.creation import Creator
from tasklib.http.errors import Problem
from tasklib.http.guard import Guard
from tasklib.http.local import LOOPBACK_HOSTS, foreign_hosts
from tasklib.http.on_call import OnCall
from tasklib.http.overtime import Overtime
from tasklib.http.quick import QuickCreate
from tasklib.http.refusals import Refusals
from tasklib.http.throttle import Throttle
from tasklib.manage import Manage
from tasklib.queue import TaskQueue

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
    app.state.manage = Manage(queue)
    app.state.identify = identifier(queue, auth)
    app.state.opens_to_this_machine = auth == "local"
    app.state.takes_tokens = auth in ("tokens", "local")
    app.state.counts = Counts(queue)
    app.state.gaps = Gaps(queue)
    app.state.failures = groups.Failures(queue)
    app.state.stopping = threading.Event()
    app.state.pulse = events.Pulse(app.state.manage, app.state.counts, app.state.stopping)
    app.state.creator = Creator(queue)
    app.state.throttle = Throttle(queue.config.submit_rate_limit)
    app.state.refusals = Refusals(queue)
    app.state.caretaker = workers.Caretaker(queue)
    app.state.on_call = OnCall(queue, app.state.stopping)
    app.state.overtime = Overtime(queue, app.state.caretaker.meter, app.state.stopping)
    app.include_router(tasks.creating_router)
    for part in (
        health,
        bulk,
        control,
        tasks,
        schedules,
        types,
        workers,
        events,
        metrics,
        series,
        audit,
        session,
        token_routes,
        groups,
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
    app.add_middleware(QuickCreate)
    app.add_middleware(Guard, max_body_bytes=limit, hosts=hosts)
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
