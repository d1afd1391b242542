"""The queue for agents, over the Model Context Protocol: `POST /mcp`."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from tasklib.http.error_handlers import text_for_caller
from tasklib.http.errors import Refused
from tasklib.http.parts import parts_of
from tasklib.http.security.audit_entry import make_entry
from tasklib.http.security.auth import Permission, needs, principal_of
from tasklib.service.audit import AuditEntry

Receive = Callable[[], Awaitable[Any]]

router = APIRouter(tags=["agents"])


@router.post("/mcp", include_in_schema=False, **needs(Permission.READ, 501))
async def serve_agent(request: Request) -> Response:
    """Answer one message of an agent; it may read, and change the queue only as far as its role and the server allow.

    There is no GET, because there is nothing to stream, and no DELETE, because there is no session to end.
    """
    try:
        server = importlib.import_module("tasklib.mcp.server")
        access = importlib.import_module("tasklib.mcp.access")
    except ModuleNotFoundError as error:
        raise Refused(
            501, "not-installed", f"agents need {error.name}, which is not installed: pip install 'tasklib-queue[mcp]'"
        ) from error
    parts, principal = parts_of(request), principal_of(request)

    def audit(action: str, target: str | None, detail: dict[str, Any]) -> AuditEntry:
        return make_entry(request, f"mcp:{action}", {**detail, **({"target": target} if target else {})})

    allowed = access.AgentAccess(
        writes=parts.agents.write and principal.may(Permission.OPERATE),
        submit=parts.agents.submit if principal.may(Permission.SUBMIT) else (),
        actor=principal.name,
        audit=audit,
        submission_wait=lambda: parts.throttle.take(principal.identity, 1),
        error_text=lambda error: text_for_caller(request, error),
    )

    # Middleware around our routes, such as Sentry's, may have read the body already, and it cannot be received twice.
    body = await request.body()

    async def respond(scope: Any, receive: Any, send: Any) -> None:
        await server.serve_request(parts.service, allowed, scope, _receive_read(body, receive), send)

    return _Responding(respond)


def _receive_read(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns the body which was read, and then whatever comes after it."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive_again() -> Any:
        return next(messages, None) or await receive()

    return receive_again


class _Responding(Response):
    """A response that the protocol's own library writes."""

    def __init__(self, respond: Callable[[Any, Any, Any], Awaitable[None]]) -> None:
        super().__init__()
        self._respond = respond

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._respond(scope, receive, send)
