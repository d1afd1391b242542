"""Many tasks at once: created together, or acted on by filter."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from tasklib.core.lifecycle import Action
from tasklib.http.create import create_once, create_tasks, many_told, once_told
from tasklib.http.errors import Refused, problems
from tasklib.http.routes.tasks import IdempotencyKey
from tasklib.http.schemas.fields import Answer
from tasklib.http.schemas.inputs import BulkAction, CreateTasks
from tasklib.http.schemas.tasks import CreatedMany
from tasklib.http.security.audit import AuditedRoute, changing, note
from tasklib.http.security.auth import Permission, needs
from tasklib.http.security.joining import Submitter
from tasklib.http.security.throttle import allow_creation
from tasklib.http.service import Service
from tasklib.service.service import QueueService

router = APIRouter(prefix="/api/tasks", tags=["tasks"], route_class=AuditedRoute)


class BulkDone(Answer):
    """How many tasks it was, or would be."""

    action: Action
    changed: int
    dry_run: bool


@router.post(
    "/batch", status_code=201, responses=problems(400, 401, 403, 409, 413, 429, 503), **needs(Permission.SUBMIT)
)
async def create_many(
    body: CreateTasks,
    request: Request,
    response: Response,
    service: Service,
    idempotency_key: IdempotencyKey = None,
) -> CreatedMany:
    """Store up to 1000 tasks, all or none."""
    allow_creation(request, body.tasks)
    repeated = next((n for n, each in enumerate(body.tasks) if each.options.repeat is not None), None)
    if repeated is not None:
        field = f"tasks[{repeated}].options.repeat"
        raise Refused(400, "invalid-request", "a repeated task is made by itself: POST /api/schedules", field=field)
    await service.queue.alearn_secrets()
    sender = Submitter.of(request)
    if idempotency_key is None:
        outcome = await create_tasks(changing(request, many_told), body.tasks, sender)
    else:
        outcome = await create_once(changing(request, once_told), body.tasks, idempotency_key, sender)
    if outcome.repeated:
        response.headers["Idempotent-Replayed"] = "true"
    return CreatedMany(tasks=outcome.tasks)


@router.post("/bulk", responses=problems(400, 401, 403, 413, 503), **needs(Permission.OPERATE))
async def act_on_matching(body: BulkAction, request: Request, service: Service) -> BulkDone:
    """Retry, cancel, prioritize or delete every task that matches; with `dryRun` only count them."""
    which = body.filter.filter(tags=body.filter.tags, ids=body.filter.ids)
    asked = body.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if body.dry_run:
        note(request, **asked)
    else:
        service = QueueService(changing(request, lambda changed: {"changed": changed}, **asked))
    changed = await service.aact_on_matching(body.action, which, priority=body.priority, dry_run=body.dry_run)
    return BulkDone(action=body.action, changed=changed, dry_run=body.dry_run)
