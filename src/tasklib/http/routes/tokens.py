"""Tokens over HTTP, for administrators: list, create and revoke."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import Field

from tasklib.http.admission.audit import AuditedRoute, audit_of
from tasklib.http.errors import Refused
from tasklib.http.parts import Service, parts_of
from tasklib.http.schemas.bounds import ListPage
from tasklib.http.schemas.fields import Answer, Input, Moment, Name
from tasklib.http.security.auth import Bearer, Permission, needs
from tasklib.service.tokens import Role

router = APIRouter(prefix="/api/tokens", tags=["security"], route_class=AuditedRoute)


class TokenInfo(Answer):
    """A token without its secret."""

    id: UUID
    name: str
    role: Role
    begins: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    valid: bool


class Tokens(Answer):
    """Tokens, the newest first."""

    tokens: list[TokenInfo]
    total: int = Field(description="How many there are.")


class CreateToken(Input):
    """A token to create."""

    name: Name
    role: Role = Role.VIEWER
    expires_at: Moment | None = None


class CreatedToken(Answer):
    """A new token; its secret is shown only here and not stored."""

    token: TokenInfo
    secret: str


@router.get("", **needs(Permission.ADMIN, 400))
async def list_tokens(query: Annotated[ListPage, Query()], service: Service) -> Tokens:
    """Every token, including revoked and expired ones; up to 1000 at once."""
    found = await service.tokens.aall()
    return Tokens(tokens=[TokenInfo.of(each) for each in query.of(found)], total=len(found))


@router.post("", status_code=201, **needs(Permission.ADMIN, 400, 413))
async def create_token(body: CreateToken, request: Request, service: Service) -> CreatedToken:
    """Create a token; once there is one, every request but those for health needs one."""
    audit = audit_of(request, name=body.name, role=str(body.role))
    made = await service.tokens.acreate(body.name, body.role, expires_at=body.expires_at, audit=audit)
    _forget_remembered(request)
    return CreatedToken(token=TokenInfo.of(made.token), secret=made.secret)


@router.delete("/{token_id}", status_code=204, **needs(Permission.ADMIN, 404))
async def revoke_token(token_id: str, request: Request, service: Service) -> None:
    """Revoke a token."""
    which = _parsed(token_id)
    if which is None or await service.tokens.arevoke(which, audit=audit_of(request)) is None:
        raise Refused(404, "token-not-found", f"there is no token {token_id!r} to revoke")
    _forget_remembered(request)


def _forget_remembered(request: Request) -> None:
    """Make the change take effect here at once; other processes notice it within a second."""
    parts = parts_of(request)
    identify = parts.identify
    if isinstance(identify, Bearer):
        identify.check.forget()
    parts.live_stats.check_tokens()


def _parsed(text: str) -> UUID | None:
    """The id; names are not accepted, because tokens may share one."""
    try:
        return UUID(text)
    except ValueError:
        return None
