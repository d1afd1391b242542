"""Many tasks at once: created together, or acted on by filter."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter, Request, Response
from pydantic import Field

from tasklib.core.lifecycle import Action
from tasklib.http.admission.audit import AuditedRoute, audit_unless
from tasklib.http.create import create_tasks
from tasklib.http.parts import Service, parts_of
from tasklib.http.routes.tasks import IdempotencyKey
from tasklib.http.schemas.fields import Answer
from tasklib.http.schemas.inputs import BulkAction, CreateTasks
from tasklib.http.schemas.tasks import Created, CreatedMany
from tasklib.http.security.auth import Permission, needs

router = APIRouter(prefix="/api/tasks", tags=["tasks"], route_class=AuditedRoute)


class BulkDone(Answer):
    """How many tasks were changed, or would be."""

    action: Action
    changed: int
    dry_run: bool


class PacedRetry(Answer):
    """Tasks that come due one after the other."""

    by: str
    began_at: datetime
    type: str | None
    count: int
    rate: float = Field(description="Tasks in a second.")
    released: int = Field(description="How many have come due.")
    ends_at: datetime


class PacedRetries(Answer):
    """Retries at a rate that are under way, the latest first."""

    retries: list[PacedRetry]


@router.get("/bulk", **needs(Permission.READ))
async def list_paced(service: Service) -> PacedRetries:
    """Retries at a rate that are under way, with how many of their tasks have come due."""
    return PacedRetries(retries=[PacedRetry.of(each) for each in await service.pacing.aunder_way()])


@router.post("/batch", status_code=201, **needs(Permission.SUBMIT, 400, 409, 413, 429))
async def create_many(
    body: CreateTasks, request: Request, response: Response, idempotency_key: IdempotencyKey = None
) -> CreatedMany:
    """Store up to 1000 tasks, all or none."""
    stored = await create_tasks(request, body.tasks, idempotency_key)
    if stored.repeated:
        response.headers["Idempotent-Replayed"] = "true"
    return CreatedMany(tasks=[Created.of(task) for task in stored.tasks])


@router.post("/bulk", **needs(Permission.OPERATE, 400, 413))
async def act_on_matching(body: BulkAction, request: Request, service: Service) -> BulkDone:
    """Retry, cancel, prioritize or delete every task that matches; with `dryRun` only count them."""
    which = await parts_of(request).ids.read(body.filter.filter(tags=body.filter.tags, ids=body.filter.ids))
    asked = body.model_dump(mode="json", by_alias=True, exclude_unset=True)
    audit = audit_unless(body.dry_run, request, **asked)
    changed = await service.aact_on_matching(
        body.action, which, priority=body.priority, rate=body.rate, dry_run=body.dry_run, audit=audit
    )
    return BulkDone(action=body.action, changed=changed, dry_run=body.dry_run)
