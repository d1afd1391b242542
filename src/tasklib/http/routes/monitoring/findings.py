"""What is wrong now, ranked, with what can be done; and what was changed lately."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field

from tasklib.http.admission.audit import AuditedRoute
from tasklib.http.parts import Counts, Service, parts_of
from tasklib.http.schemas.fields import Answer, Input
from tasklib.http.security.auth import Permission, needs
from tasklib.service.findings import MOST_GROUPS

router = APIRouter(prefix="/api", tags=["findings"], route_class=AuditedRoute)


class FindingAction(Answer):
    """Something that can be done about a finding."""

    action: Literal[
        "resume", "redrive", "tasks", "task", "workers", "schedules", "limits", "questions", "latency", "errors"
    ] = Field(description="`resume` a type, `redrive` an error group; the others say where to look.")
    label: str
    target: str | None = Field(description="The type, group, task or schedule that is meant; null for all.")


class FindingInfo(Answer):
    """Something that is wrong now."""

    code: str = Field(description="Names the kind of finding; stable.")
    severity: Literal["critical", "warning", "info"]
    text: str
    since: datetime | None
    count: int = Field(description="How many tasks it concerns.")
    type: str | None = Field(validation_alias="name", description="The type it is about; null if about several.")
    actions: list[FindingAction] = Field(validation_alias="remedies")
    alike: int = Field(
        description="How many findings of its kind this one stands for: 1 for the first of a kind, more for the rest."
    )


class FindingInfos(Answer):
    """What is wrong now, the most urgent first."""

    findings: list[FindingInfo]


class ChangeInfo(Answer):
    """Something that may explain what changed in a chart."""

    at: datetime
    kind: Literal["release", "worker_started", "worker_stopped", "worker_lost", "action"]
    text: str


class ChangeInfos(Answer):
    """Changes, the newest first."""

    changes: list[ChangeInfo]


class ChangesQuery(Input):
    """The period to show."""

    seconds: Annotated[int, Field(ge=60, le=30 * 86_400)] = Field(
        3600, description="How far back; of workers and releases a week is kept."
    )


@router.get("/findings", **needs(Permission.READ))
async def list_findings(request: Request, service: Service, counts: Counts) -> FindingInfos:
    """What is wrong now: pauses, unhandled types, slots held by one type, new errors, lost workers, missed runs."""
    groups, _ = await parts_of(request).failures.get(None, MOST_GROUPS)
    objective_statuses = await parts_of(request).objective_statuses.get()
    stats = await counts.stats(live=True)
    found = await counts.read(service.findings.now, service.findings.anow, stats, groups, objective_statuses)
    return FindingInfos(findings=[FindingInfo.of(each) for each in found])


@router.get("/changes", **needs(Permission.READ, 400))
async def list_changes(query: Annotated[ChangesQuery, Query()], service: Service) -> ChangeInfos:
    """Releases, workers that started and ended, and what people paused, limited or changed in bulk."""
    found = await service.findings.achanges(seconds=query.seconds)
    return ChangeInfos(changes=[ChangeInfo.of(each) for each in found])
