"""The audit log's entry of a request: who, from where, and about what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from fastapi import Request
from starlette.routing import Route

from tasklib.http.security.auth import Principal
from tasklib.service.audit import AuditEntry

ANONYMOUS: Final = "anonymous"
"""The actor of a request without a valid token."""


def make_entry(request: Request, action: str, shown: Mapping[str, Any]) -> AuditEntry:
    """The entry; nothing in `shown` may be secret."""
    principal: Principal | None = getattr(request.state, "principal", None)
    return AuditEntry(
        actor=ANONYMOUS if principal is None else principal.name,
        role="none" if principal is None else str(principal.role),
        action=action,
        target=target_of(request),
        detail=shown,
        remote=request.client.host if request.client else None,
        request_id=getattr(request.state, "request_id", None),
    )


def action_of(request: Request) -> str:
    """The name of the request's route; `request` if it was refused before it was routed."""
    # Before routing it may be the mount of the application around us.
    route = request.scope.get("route")
    return route.name if isinstance(route, Route) else getattr(request.state, "action", "request")


def target_of(request: Request) -> str | None:
    """What the request is about, from its path; ids in the spelling of the table."""
    named = next(iter(request.path_params.values()), None)
    try:
        return None if named is None else str(UUID(named))
    except ValueError:
        return storable(str(named))


def storable(text: str) -> str:
    """Up to 300 characters of the text, without what a database refuses, so that every entry can be stored."""
    return text[:300].replace("\0", "\ufffd").encode("utf-8", "replace").decode()
