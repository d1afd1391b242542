"""Workflows of workers in any language: recording steps, waiting without holding the task, running children."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response

from tasklib.errors import InvalidPayload, ResultError
from tasklib.http.admission.audit import AuditedRoute, audit_of
from tasklib.http.errors import Refused
from tasklib.http.parts import Service, parts_of
from tasklib.http.routes.workers import Owner, TaskId
from tasklib.http.schemas.workers import (
    Child,
    ChildPage,
    ChildQuery,
    ChildrenInput,
    ChildrenStored,
    PageQuery,
    RecordedStep,
    RecordedSteps,
    StepInput,
    Suspended,
    SuspendInput,
    fitting,
)
from tasklib.http.security.auth import Permission, needs
from tasklib.service.http_workers.recording import Attempt, Recording, Wait
from tasklib.service.service import QueueService

router = APIRouter(prefix="/api/tasks/{task_id}", tags=["workers"], route_class=AuditedRoute)

SUSPENDED: Final[dict[int | str, dict[str, Any]]] = {
    202: {"description": "It is not there yet: the attempt has ended, and was not spent.", "model": Suspended}
}


def _recording(request: Request) -> Recording:
    return parts_of(request).recording


Records = Annotated[Recording, Depends(_recording)]


@router.get("/steps/recorded", **needs(Permission.WORK, 400, 404, 409))
async def list_recorded(
    task_id: TaskId,
    request: Request,
    records: Records,
    owner: Owner,
    query: Annotated[PageQuery, Query()],
) -> RecordedSteps:
    """The recorded steps of a running attempt's task, unmasked; a page has at most 256 KB."""
    recorded = await records.arecords(Attempt(task_id, query.version, owner))
    found = [step for step in recorded if step.number > query.after]
    shown = fitting(found)
    rest = len(found) > len(shown)
    url = f"{_own_url(request, task_id)}/steps/recorded?version={query.version}"
    return RecordedSteps(
        steps=[RecordedStep.of(step) for step in shown], next=f"{url}&after={shown[-1].number}" if rest else None
    )


@router.post("/steps", **needs(Permission.WORK, 400, 404, 409, 413))
async def record_step(task_id: TaskId, body: StepInput, records: Records, owner: Owner) -> RecordedStep:
    """Record a step: what is stored now, which is the value that was sent first.  409: the claim is lost."""
    error = None if body.error is None else body.error.model_dump()
    attempt = Attempt(task_id, body.version, owner)
    try:
        stored = await records.arecord(
            attempt, body.key, digest=body.digest, value=body.value, error=error, seconds=body.seconds
        )
    except ResultError as too_large:
        raise Refused(400, "invalid-result", str(too_large), field="value") from too_large
    return RecordedStep.of(stored)


@router.post("/suspend", response_model=RecordedStep, **needs(Permission.WORK, 400, 404, 409, 413, also=SUSPENDED))
async def suspend(
    task_id: TaskId, body: SuspendInput, request: Request, service: Service, records: Records, owner: Owner
) -> Any:
    """What the workflow waits for, if it is there.  202: it is not; stop, the task is claimed again when it is."""
    attempt = Attempt(task_id, body.version, owner)
    audit = audit_of(request, version=body.version, key=body.key)
    if body.mismatch is not None:
        await records.apark(attempt, body.mismatch, audit=audit)
        return _accepted()
    seconds = await _seconds_until(service, body.until)
    question = None if body.ask is None else {"question": body.ask, "schema": body.answer_schema}
    wait = Wait(body.key, seconds, body.events, question, is_group=body.group)
    step = await records.asuspend(attempt, wait, audit)
    return _accepted() if step is None else RecordedStep.of(step)


@router.post("/children", **needs(Permission.WORK, 400, 404, 409, 413))
async def add_children(
    task_id: TaskId, body: ChildrenInput, request: Request, service: Service, records: Records, owner: Owner
) -> ChildrenStored:
    """Store children of the workflow, up to 1000 at once; sent again it changes nothing."""
    try:
        found = await records.achildren(
            Attempt(task_id, body.version, owner),
            body.key,
            body.type,
            body.payloads,
            before=body.before,
            sealed=body.sealed,
            max_failures=body.max_failures,
            seconds=await _seconds_until(service, body.until),
            audit=audit_of(request, version=body.version, key=body.key, type=body.type),
        )
    except InvalidPayload as invalid:
        raise Refused(400, "invalid-arguments", str(invalid), field="payloads") from invalid
    step = found.step
    is_open = step.state == "open"
    return ChildrenStored(
        key=step.key,
        group=found.group,
        total=found.total,
        sealed=found.sealed,
        state=step.state,
        value=None if is_open else step.value,
        error=None if is_open else step.error,
    )


@router.get("/children/{key:path}", **needs(Permission.WORK, 400, 404, 409))
async def list_children(
    task_id: TaskId,
    key: str,
    request: Request,
    records: Records,
    owner: Owner,
    query: Annotated[ChildQuery, Query()],
) -> ChildPage:
    """The children of a step with their results, in the order in which they were sent, 1000 at a time."""
    found = await records.aresults(Attempt(task_id, query.version, owner), key, query.after)
    url = f"{_own_url(request, task_id)}/children/{key}?version={query.version}"
    return ChildPage(
        children=[Child.of(child) for child in found], next=f"{url}&after={found[-1].id}" if found else None
    )


async def _seconds_until(service: QueueService, until: datetime | None) -> float | None:
    """Seconds until a moment, by the database's clock."""
    if until is None:
        return None
    return max(0.0, (until - await service.workflows.anow()).total_seconds())


def _own_url(request: Request, task_id: UUID) -> str:
    return f"{request.scope.get('root_path', '')}/api/tasks/{task_id}"


def _accepted() -> Response:
    return Response(Suspended().model_dump_json(by_alias=True), 202, media_type="application/json")
