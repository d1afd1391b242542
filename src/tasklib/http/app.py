"""The app as a whole: its routes, its checks, and its error handlers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

import tasklib
from tasklib.errors import ConfigurationError
from tasklib.http import error_handlers
from tasklib.http.admission.authorization import authorize, refuse_repeated
from tasklib.http.admission.request_guard import RequestGuard
from tasklib.http.errors import Problem
from tasklib.http.fast_create import FastCreate
from tasklib.http.pages import dashboard
from tasklib.http.parts import AgentsMay, Parts
from tasklib.http.routes import (
    agents,
    audit,
    bulk,
    events,
    flows,
    limits,
    schedules,
    session,
    tasks,
    tokens,
    types,
    worker_steps,
    workers,
    workflows,
)
from tasklib.http.routes.monitoring import (
    error_groups,
    findings,
    health,
    lanes,
    latency,
    metrics,
    objectives,
    scale,
    series,
)
from tasklib.http.security.auth import Auth, Permission, needs
from tasklib.http.security.local import LOOPBACK_HOSTS, foreign_hosts
from tasklib.queue import TaskQueue

TITLE: Final = "tasklib"
SUMMARY: Final = "Durable background tasks."
BODY_BYTES_BESIDE_PAYLOAD: Final = 64 * 1024
ROUTERS: Final = (
    tasks.creating_router,  # the busiest, looked at first
    health.router,
    bulk.router,
    limits.router,
    tasks.router,
    schedules.router,
    schedules.cron_router,
    types.router,
    scale.router,
    workers.router,
    events.router,
    workflows.router,
    flows.router,
    findings.router,
    metrics.router,
    series.router,
    latency.router,
    lanes.router,
    objectives.router,
    audit.router,
    session.router,
    tokens.router,
    error_groups.router,
    agents.router,
    dashboard.router,
    tasks.plain_router,
    workers.ending_router,
    worker_steps.router,
)
CHECKS: Final = (Depends(authorize), Depends(refuse_repeated))
# Put together once: FastAPI takes 0.2 s to prepare these routes, which a program with several apps pays only once.
_ROUTES: Final = APIRouter(dependencies=CHECKS)
for _router in ROUTERS:
    _ROUTES.include_router(_router)


def create_app(
    queue: TaskQueue, *, auth: Auth, hosts: Iterable[str] | None = None, agents: AgentsMay | None = None
) -> FastAPI:
    """The HTTP service of a queue, for any ASGI server or for mounting in another app.

    `hosts` are the names it answers for; with `auth="local"` those of this machine, and no others.  `agents` says what
    agents may do at `/mcp` beside reading.
    """
    if auth == "local":
        hosts = _only_this_machine(hosts)
    app = FastAPI(
        title=TITLE,
        version=tasklib.__version__,
        summary=SUMMARY,
        openapi_url=None,  # served below, behind the same check as everything else
        dependencies=CHECKS,
    )
    app.state.parts = Parts.of(queue, auth, agents)
    app.router.routes.extend(_ROUTES.routes)
    app.add_api_route(
        "/openapi.json", _serve_description, methods=["GET"], include_in_schema=False, **needs(Permission.READ)
    )
    app.openapi = _describe  # type: ignore[method-assign]
    error_handlers.install(app)
    limit = queue.config.max_payload_bytes + BODY_BYTES_BESIDE_PAYLOAD
    app.add_middleware(FastCreate)
    app.add_middleware(RequestGuard, max_body_bytes=limit, hosts=hosts)
    return app


def _only_this_machine(hosts: Iterable[str] | None) -> Iterable[str]:
    """The given names of this machine, or all of them; to answer for other names it needs tokens."""
    if hosts is None:
        return LOOPBACK_HOSTS
    chosen = list(hosts)
    foreign = foreign_hosts(chosen)
    if foreign:
        raise ConfigurationError(
            f"auth='local' accepts every program on this machine, so it cannot serve {', '.join(foreign)} as well: "
            "others come through a proxy by that name; use auth='tokens'"
        )
    return chosen


async def _serve_description(request: Request) -> Response:
    """The description of this interface; where the app is mounted, its paths are below that prefix."""
    description = _description_as_json()
    if root := request.scope.get("root_path"):
        servers = json.dumps({"servers": [{"url": quote(root)}]}).encode()
        description = servers[:-1] + b", " + description[1:]
    return Response(description, media_type="application/json")


@cache
def _description_as_json() -> bytes:
    return json.dumps(_describe(), ensure_ascii=False).encode()


@cache
def _describe() -> dict[str, Any]:
    """OpenAPI 3.1 of every route, made once in a process: all apps have the same, and it takes half a second.

    An invalid request is answered with a Problem and status 400.
    """
    description = get_openapi(title=TITLE, version=tasklib.__version__, summary=SUMMARY, routes=_ROUTES.routes)
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
    return description
