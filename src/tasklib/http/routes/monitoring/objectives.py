"""Objectives: what share of a type's tasks should start, or end, within a given time, and whether it does."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BeforeValidator, Field

from tasklib.http.admission.audit import AuditedRoute, audit_of
from tasklib.http.parts import Service, parts_of
from tasklib.http.schemas.fields import Answer, Input, Name, check_number
from tasklib.http.security.auth import Permission, needs, principal_of
from tasklib.service.insights.objectives import ObjectiveStatus, check_objective

router = APIRouter(prefix="/api/objectives", tags=["metrics"], route_class=AuditedRoute)

Seconds = Annotated[float, BeforeValidator(check_number), Field(gt=0, le=86_400)]
Percent = Annotated[float, BeforeValidator(check_number), Field(gt=0, lt=100)]


class ObjectiveInput(Input):
    """An objective, which replaces the one of the same type and kind; null as `withinSeconds` removes that one."""

    type: Name | None = Field(None, description="Null for all types together.")
    kind: Literal["wait", "run"] = Field("wait", description="From due to started, or from started to ended.")
    within_seconds: Seconds | None = Field(description="Null removes the objective.", examples=[5])
    target: Percent = Field(99.5, description="Percentage of attempts that should be within that time.")


class ObjectiveInfo(Answer):
    """An objective, and how far it is met."""

    type: str | None
    kind: Literal["wait", "run"]
    within_seconds: float
    target: float
    set_at: datetime | None
    set_by: str | None
    count: int = Field(description="How many attempts there were.")
    within: float | None = Field(description="The percentage within the objective; null if there were none.")
    budget: float | None = Field(
        description="Percentage of the error budget that is left: 100 if no attempt missed it, below 0 if overspent."
    )
    at_risk: bool = Field(description="Whether less than a quarter of the budget is left.")


class ObjectiveInfos(Answer):
    """Objectives, by type."""

    objectives: list[ObjectiveInfo]


class ObjectivesQuery(Input):
    """The period over which they are measured."""

    seconds: Annotated[int, Field(ge=60, le=30 * 86_400)] = Field(86_400, description="How far back.")


class ObjectiveSet(Answer):
    """Whether there is an objective from now on."""

    holds: bool


@router.get("", **needs(Permission.READ, 400))
async def list_objectives(query: Annotated[ObjectivesQuery, Query()], service: Service) -> ObjectiveInfos:
    """Every objective, with its error budget over the last `seconds`."""
    found = await service.objectives.astatuses(seconds=query.seconds)
    return ObjectiveInfos(objectives=[_shown(each) for each in found])


@router.post("", **needs(Permission.OPERATE, 400))
async def set_objective(body: ObjectiveInput, request: Request, service: Service) -> ObjectiveSet:
    """Set or remove the objective of a type; *Now* and `GET /api/findings` say when it is at risk."""
    detail = {"type": body.type, "kind": body.kind, "withinSeconds": body.within_seconds}
    if body.within_seconds is None:
        await service.objectives.aremove(body.type, body.kind, audit=audit_of(request, **detail))
        parts_of(request).objective_statuses.forget()
        return ObjectiveSet(holds=False)
    by = principal_of(request).name
    objective = check_objective(body.type, body.kind, body.within_seconds, body.target, by)
    await service.objectives.aset(objective, audit=audit_of(request, **detail, target=body.target))
    parts_of(request).objective_statuses.forget()
    return ObjectiveSet(holds=True)


def _shown(each: ObjectiveStatus) -> ObjectiveInfo:
    objective = each.objective
    return ObjectiveInfo(
        type=objective.name,
        kind=objective.kind,
        within_seconds=objective.within_seconds,
        target=objective.target,
        set_at=objective.set_at,
        set_by=objective.set_by,
        count=each.count,
        within=each.within,
        budget=each.budget,
        at_risk=each.at_risk,
    )
