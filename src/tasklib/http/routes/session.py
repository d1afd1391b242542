"""The dashboard's session: a cookie that holds the token, made from a request that brings the token itself."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from tasklib.http.admission.audit import AuditedRoute
from tasklib.http.schemas.fields import Answer
from tasklib.http.security.auth import GRANTS, Permission, cookie_name, needs, principal_of
from tasklib.service.tokens import Role

router = APIRouter(prefix="/api/session", tags=["security"], route_class=AuditedRoute)


class Session(Answer):
    """The caller, its role and its permissions."""

    name: str
    role: Role
    permissions: list[Permission]


@router.get("", **needs(Permission.LOOK))
async def get_session(request: Request) -> Session:
    """The caller and its role."""
    principal = principal_of(request)
    return Session(name=principal.name, role=principal.role, permissions=sorted(GRANTS[principal.role]))


@router.post("", **needs(Permission.LOOK))
async def log_in(request: Request, response: Response) -> Session:
    """Store the token of this request's Authorization header in a cookie that no script can read."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        response.set_cookie(cookie_name(request), secret.strip(), **_attributes(request))
    return await get_session(request)


@router.delete("", status_code=204, **needs(Permission.LOOK))
async def log_out(request: Request, response: Response) -> None:
    """Delete the cookie."""
    response.delete_cookie(cookie_name(request), **_attributes(request))


def _attributes(request: Request) -> dict[str, Any]:
    """The attributes of the cookie; browsers require the path / for one that is bound to the host."""
    secure = request.url.scheme == "https"
    path = "/" if secure else request.scope.get("root_path") or "/"
    return {"path": path, "secure": secure, "httponly": True, "samesite": "strict"}
