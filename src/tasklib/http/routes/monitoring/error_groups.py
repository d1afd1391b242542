"""Errors: what failed for good, grouped by what went wrong, and started again together."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import BeforeValidator, Field

from tasklib.core.queue_info import ErrorGroup
from tasklib.http.admission.audit import AuditedRoute, audit_of, audit_unless
from tasklib.http.errors import Refused
from tasklib.http.parts import Service, parts_of
from tasklib.http.schemas.fields import Answer, Input, Name, check_number
from tasklib.http.security.auth import Permission, needs, principal_of
from tasklib.service.error_groups import HOURS, MOST_GROUPS, ErrorMark, status_of

router = APIRouter(prefix="/api/errors", tags=["errors"], route_class=AuditedRoute)

MAX_GROUPS = 100


class ErrorsQuery(Input):
    """Selects groups of errors."""

    type: Name | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_GROUPS)] = MAX_GROUPS


class ErrorInfo(Answer):
    """Tasks of one type that failed for good in the same way."""

    id: str
    type: str
    fingerprint: str | None = Field(description="The exception, and the function in which it was raised.")
    count: int
    first_seen: datetime
    last_seen: datetime
    example_id: UUID = Field(description="The task that failed last.")
    message: str = Field(description="What its error said.")
    hours: list[int] = Field(description="How many failed in each of the last 24 hours, the oldest first.")
    status: Literal["open", "muted", "resolved", "reopened"] = Field(
        description="`reopened`: it was resolved, and came again."
    )
    marked_at: datetime | None = Field(description="When it was muted or resolved.")
    marked_by: str | None


class ErrorInfos(Answer):
    """Groups of failures, the latest first."""

    groups: list[ErrorInfo]


class Redrive(Input):
    """How to redrive a group."""

    rate: Annotated[float, BeforeValidator(check_number), Field(gt=0, lt=1e9)] | None = Field(
        default=None, description="Tasks that become due per second; all at once if left out."
    )
    dry_run: bool = False


class Redriven(Answer):
    """How many tasks were changed, or would be."""

    changed: int
    dry_run: bool


class MarkInput(Input):
    """A decision about a group."""

    status: Literal["open", "muted", "resolved"] = Field(
        description="`muted`: findings do not report it; `resolved`: until it comes again; `open`: neither."
    )


@router.get("", **needs(Permission.READ, 400))
async def list_errors(query: Annotated[ErrorsQuery, Query()], request: Request, service: Service) -> ErrorInfos:
    """Groups of tasks that failed for good or were buried, the latest first; at most 5 s old if there are many."""
    groups, hours = await parts_of(request).failures.get(query.type, query.limit)
    shown = await service.error_groups.ashown(groups)
    marks = await service.error_groups.amarks()
    return ErrorInfos(groups=[_shown(each, hours.get(each.id, [0] * HOURS), marks.get(each.id)) for each in shown])


@router.get("/{group_id}", **needs(Permission.READ, 404))
async def get_error(group_id: str, request: Request, service: Service) -> ErrorInfo:
    """One group of errors."""
    groups, hours = await parts_of(request).failures.get(None, MOST_GROUPS)
    found = [each for each in groups if each.id == group_id]
    if not found:
        raise _unknown(group_id)
    (shown,) = await service.error_groups.ashown(found)
    marks = await service.error_groups.amarks()
    return _shown(shown, hours.get(group_id, [0] * HOURS), marks.get(group_id))


@router.post("/{group_id}/status", **needs(Permission.OPERATE, 400, 404))
async def mark_error(group_id: str, body: MarkInput, request: Request, service: Service) -> ErrorInfo:
    """Mute a group, resolve it until it comes again, or open it."""
    await get_error(group_id, request, service)
    mark = None if body.status == "open" else body.status
    audit = audit_of(request, group=group_id, status=body.status)
    await service.error_groups.amark(group_id, mark, by=principal_of(request).name, audit=audit)
    return await get_error(group_id, request, service)


@router.post("/{group_id}/redrive", **needs(Permission.OPERATE, 400, 404))
async def redrive(group_id: str, request: Request, service: Service, body: Redrive | None = None) -> Redriven:
    """Retry every task of the group, from zero attempts; with `dryRun` only count them."""
    body = body or Redrive()
    group = await service.error_groups.afind(group_id)
    if group is None:
        raise _unknown(group_id)
    dry = {"dryRun": True} if body.dry_run else {"rate": body.rate}
    audit = audit_unless(body.dry_run, request, type=group.name, fingerprint=group.fingerprint, **dry)
    changed = await service.error_groups.aredrive(group, rate=body.rate, dry_run=body.dry_run, audit=audit)
    parts_of(request).failures.forget()
    return Redriven(changed=changed, dry_run=body.dry_run)


def _unknown(group_id: str) -> Refused:
    return Refused(404, "error-group-not-found", f"there is no group of errors {group_id!r}; see GET /api/errors")


def _shown(group: ErrorGroup, hours: list[int], mark: ErrorMark | None) -> ErrorInfo:
    return ErrorInfo(
        id=group.id,
        type=group.name,
        fingerprint=group.fingerprint,
        count=group.count,
        first_seen=group.first_seen,
        last_seen=group.last_seen,
        example_id=group.example,
        message=group.message,
        hours=hours,
        status=status_of(group.last_seen, mark),
        marked_at=None if mark is None else mark.set_at,
        marked_by=None if mark is None else mark.set_by,
    )
