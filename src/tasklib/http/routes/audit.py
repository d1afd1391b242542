"""The audit log, for administrators."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from tasklib.http.admission.audit import AuditedRoute
from tasklib.http.parts import Service
from tasklib.http.schemas.fields import Answer, Input
from tasklib.http.security.auth import Permission, needs
from tasklib.service.audit import AuditEntry


class Entry(Answer):
    """One change."""

    seq: int
    at: datetime
    actor: str
    role: str
    action: str
    target: str | None
    detail: dict[str, Any]
    remote: str | None
    request_id: str | None


class Entries(Answer):
    """Changes, the newest first."""

    entries: list[Entry]


class AuditQuery(Input):
    """Selects a page of the log."""

    limit: Annotated[int, Field(ge=1, le=500)] = 100
    before: Annotated[int, Field(ge=0, lt=2**53)] | None = Field(None, description="`seq` of the last entry seen.")


router = APIRouter(prefix="/api/audit", tags=["security"], route_class=AuditedRoute)


@router.get("", **needs(Permission.ADMIN, 400))
async def read_audit(query: Annotated[AuditQuery, Query()], service: Service) -> Entries:
    """The audit log, the newest entry first."""
    found = await service.audit_log.apage(limit=query.limit, before=query.before)
    names = AuditEntry.__slots__
    return Entries(
        entries=[
            Entry(seq=each.seq, at=each.at, **{name: getattr(each.entry, name) for name in names}) for each in found
        ]
    )
