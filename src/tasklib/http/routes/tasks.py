"""Tasks one by one: create, list, read, retry, cancel, delete; and their counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from tasklib.core.lifecycle import Action
from tasklib.core.task import TaskState
from tasklib.errors import InvalidTransition
from tasklib.http import create
from tasklib.http.admission.audit import AuditedRoute, audit_of, audit_unless
from tasklib.http.admission.authorization import allow_submission
from tasklib.http.parts import NOT_MODIFIED, Counts, Service, conditional, parts_of
from tasklib.http.schemas.fields import TOKEN_PATTERN
from tasklib.http.schemas.inputs import CleanupQuery, CreateTask, ListQuery, PriorityInput, Resubmit, cursor_of
from tasklib.http.schemas.schedules import CreatedSchedule
from tasklib.http.schemas.tasks import (
    Cancelled,
    Created,
    Deleted,
    Explained,
    Prioritized,
    Retried,
    Stats,
    Task,
    TaskDetail,
    TaskPage,
)
from tasklib.http.security.auth import Permission, needs
from tasklib.service.creation import Stored

router = APIRouter(prefix="/api/tasks", tags=["tasks"], route_class=AuditedRoute)
creating_router = APIRouter(prefix="/api/tasks", tags=["tasks"], route_class=AuditedRoute)
"""The busiest route, matched before the others."""
plain_router = APIRouter(tags=["tasks"], route_class=AuditedRoute)
"""`POST /tasks`, as the executor's specification has it."""

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=TOKEN_PATTERN,
        description="Repeating the request with the same key creates no second task, for 24 hours.",
    ),
]
ALREADY: dict[int | str, dict[str, Any]] = {
    200: {"description": "A live task holds the unique key: this is that one.", "model": Created}
}


@creating_router.post(
    "",
    status_code=201,
    response_model=Created | CreatedSchedule,
    **needs(Permission.SUBMIT, 400, 409, 413, 429, also=ALREADY),
)
async def create_task(body: CreateTask, request: Request, idempotency_key: IdempotencyKey = None) -> Response:
    """Submit a task; with `options.repeat`, create a schedule."""
    if body.options.repeat is not None:
        made = CreatedSchedule.of(await create.create_schedule(request, body))
        return Response(made.model_dump_json(by_alias=True), 201, media_type="application/json")
    if idempotency_key is not None:
        return _created(await create.create_tasks(request, [body], idempotency_key), request)
    return await store_task(body, request)


async def store_task(body: CreateTask, request: Request) -> Response:
    """Store one task."""
    return _created(await create.create_task(request, body), request)


plain_router.post(
    "/tasks",
    status_code=201,
    operation_id="create_task_plain",
    response_model=Created | CreatedSchedule,
    **needs(Permission.SUBMIT, 400, 409, 413, 429, also=ALREADY),
)(create_task)


@router.get("", response_model=TaskPage, **needs(Permission.READ, 400, also=NOT_MODIFIED))
async def list_tasks(
    query: Annotated[ListQuery, Query()], request: Request, service: Service, counts: Counts
) -> Response:
    """Tasks that match, newest first.

    In a large queue a page may be short, or empty: if `nextCursor` is set, there is more to scan.
    """
    which = await parts_of(request).ids.read(query.wanted())
    start = replace(query.start(), gap=await parts_of(request).gaps.gap_for(which))
    stats = await counts.stats() if query.total or which.name is not None else None
    found = await service.alisting(which, limit=query.limit, start=start, stats=stats, counted=query.total)
    page = TaskPage(
        tasks=[Task.of(task) for task in found.tasks],
        total=found.total,
        limit=query.limit,
        offset=query.offset,
        next_cursor=None if found.next is None else cursor_of(found.next),
        looked=None if found.looked is None else round(found.looked, 4),
    )
    return conditional(request, page)


@router.get("/stats", response_model=Stats, **needs(Permission.READ, also=NOT_MODIFIED))
async def get_stats(request: Request, counts: Counts) -> Response:
    """Counts of tasks by status, in total and by type; `maxAgeSeconds` says how old they may be."""
    stats = await counts.stats(live=True)
    return conditional(request, await counts.beside(lambda: Stats.counted(stats, counts.live_max_age_seconds)))


@router.delete("", **needs(Permission.OPERATE, 400))
async def clean_up(query: Annotated[CleanupQuery, Query()], request: Request, service: Service) -> Deleted:
    """Delete tasks that ended before a moment: completed ones, unless `status` names others."""
    states = [TaskState(status) for status in query.status]
    asked = query.model_dump(mode="json", by_alias=True, exclude_unset=True)
    audit = audit_unless(query.dry_run, request, **asked)
    deleted = await service.acleanup(query.older_than, states, name=query.type, dry_run=query.dry_run, audit=audit)
    return Deleted(deleted=deleted)


@router.get("/{task_id}", **needs(Permission.LOOK, 404))
async def get_task(task_id: str, service: Service) -> TaskDetail:
    """One task with its attempts and log lines."""
    return TaskDetail.of(await service.aget(task_id))


@router.delete("/{task_id}", status_code=204, **needs(Permission.OPERATE, 400, 404))
async def delete_task(task_id: str, request: Request, service: Service) -> None:
    """Delete a finished task."""
    await service.aact(Action.DELETE, task_id, audit=audit_of(request))


@router.post("/{task_id}/retry", **needs(Permission.OPERATE, 400, 404, 409))
async def retry_task(
    task_id: str,
    request: Request,
    service: Service,
    force: bool = False,
    from_step: Annotated[str | None, Query(alias="fromStep", min_length=1, max_length=500)] = None,
    from_scratch: Annotated[bool, Query(alias="fromScratch")] = False,
) -> Retried:
    """Retry a failed, cancelled or buried task, from zero attempts; with `force` a completed one too.

    A workflow resumes at the step that failed; `fromStep` forgets that step and those after it,
    `fromScratch` everything that it has recorded.
    """
    task = await service.aget(task_id)
    if task.state is TaskState.COMPLETED and not force:
        raise InvalidTransition(
            task.id, task.state, "retry", "failed, cancelled or buried (or completed, with ?force=true)"
        )
    audit = audit_of(request, fromStep=from_step, fromScratch=from_scratch or None)
    task = await service.aact(Action.RETRY, task_id, from_step=from_step, from_scratch=from_scratch, audit=audit)
    return Retried.of(task)


@router.post("/{task_id}/priority", **needs(Permission.OPERATE, 400, 404))
async def set_priority(task_id: str, body: PriorityInput, request: Request, service: Service) -> Prioritized:
    """Change the priority of a task that has not ended; for a running one it applies from its next attempt on."""
    audit = audit_of(request, priority=body.priority)
    task = await service.aact(Action.PRIORITIZE, task_id, priority=body.priority, audit=audit)
    return Prioritized.of(task)


@router.post("/{task_id}/cancel", **needs(Permission.OPERATE, 400, 404))
async def cancel_task(task_id: str, request: Request, service: Service) -> Cancelled:
    """Cancel a waiting task at once, or ask the worker of a running one to stop it."""
    task = await service.aact(Action.CANCEL, task_id, audit=audit_of(request))
    return Cancelled.of(task)


@router.get("/{task_id}/explain", **needs(Permission.READ, 404))
async def explain_task(task_id: str, service: Service) -> Explained:
    """Why the task is not running, with the evidence and what to do."""
    return Explained.explaining(await service.aexplain(task_id))


@router.post("/{task_id}/resubmit", status_code=201, **needs(Permission.OPERATE, 400, 404, 413, 429))
async def resubmit_task(task_id: str, body: Resubmit, request: Request, service: Service) -> Created:
    """Store a new task like this one with another payload; a `**********` left in it stands for the stored secret."""
    allow_submission(request)
    audit = audit_of(request, of=task_id)
    made = await service.aresubmit(task_id, body.payload, priority=body.priority, audit=audit)
    return Created.of(await service.aget(made.id))


def _created(stored: Stored, request: Request) -> Response:
    """The answer, written here: checking it again would cost as much as storing the task."""
    (task,) = stored.tasks
    headers = {"Idempotent-Replayed": "true"} if stored.repeated else {}
    headers["Location"] = f"{request.scope.get('root_path', '')}/api/tasks/{task.id}"
    status = 201 if stored.made else 200
    return Response(Created.of(task).model_dump_json(by_alias=True), status, headers, "application/json")
