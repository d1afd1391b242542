"""Schedules: make, change, pause, resume, run now, remove."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from tasklib.core.redaction import MaskLeft
from tasklib.core.schedule import Schedule as Stored
from tasklib.http.errors import Refused, problems
from tasklib.http.schemas.bounds import Part
from tasklib.http.schemas.schedules import CreateSchedule, PutSchedule, Ran, Schedule, Schedules
from tasklib.http.security.audit import AuditedRoute, changing
from tasklib.http.security.auth import Permission, needs, principal_of
from tasklib.http.security.throttle import allow_submission
from tasklib.http.service import Queue
from tasklib.queue import TaskQueue

router = APIRouter(prefix="/api/schedules", tags=["schedules"], route_class=AuditedRoute)


@router.get("", responses=problems(400, 401, 403, 503), **needs(Permission.READ))
async def list_schedules(query: Annotated[Part, Query()], queue: Queue) -> Schedules:
    """Every schedule, by name, with its next five runs; up to 1000 at once."""
    found = await queue.aschedules()
    await queue.alearn_secrets()
    return Schedules(schedules=[_shown(queue, each) for each in query.of(found)], total=len(found))


@router.post("", status_code=201, responses=problems(400, 401, 403, 409, 413, 503), **needs(Permission.OPERATE))
async def create_schedule(body: CreateSchedule, request: Request, queue: Queue) -> Schedule:
    """Make a schedule."""
    if await queue.aget_schedule(body.name) is not None:
        detail = f"there is a schedule {body.name!r} already; change it by PUT"
        raise Refused(409, "schedule-exists", detail, field="name")
    await queue.alearn_secrets()
    decided: dict[str, Any] = {**body.decided(), "secrets": list(queue.secret_places.of(body.type))}
    return _shown(queue, await changing(request, name=body.name).aadd_schedule(body.name, **decided))


@router.get("/{name}", responses=problems(401, 403, 404, 503), **needs(Permission.READ))
async def get_schedule(name: str, queue: Queue) -> Schedule:
    """One schedule."""
    return await _required(queue, name)


@router.put("/{name}", responses=problems(400, 401, 403, 413, 503), **needs(Permission.OPERATE))
async def put_schedule(name: str, body: PutSchedule, request: Request, queue: Queue) -> Schedule:
    """Make a schedule, or change the one of that name."""
    await queue.alearn_secrets()
    decided: dict[str, Any] = {**body.decided(), "secrets": list(queue.secret_places.of(body.type))}
    stored = await queue.aget_schedule(name) if _storable(name) else None
    if stored is not None:
        decided |= _kept(queue, stored, body)
    return _shown(queue, await changing(request).aadd_schedule(name, **decided))


@router.delete("/{name}", status_code=204, responses=problems(401, 403, 404, 503), **needs(Permission.OPERATE))
async def remove_schedule(name: str, request: Request) -> None:
    """Forget a schedule; tasks it has made stay."""
    if not _storable(name) or not await changing(request, _if_done).aremove_schedule(name):
        raise _unknown(name)


@router.post("/{name}/pause", responses=problems(401, 403, 404, 503), **needs(Permission.OPERATE))
async def pause_schedule(name: str, request: Request, queue: Queue) -> Schedule:
    """Let no more ticks run."""
    by = principal_of(request).name
    if not _storable(name) or not await changing(request, _if_done).apause_schedule(name, by=by):
        raise _unknown(name)
    return await _required(queue, name)


@router.post("/{name}/resume", responses=problems(401, 403, 404, 503), **needs(Permission.OPERATE))
async def resume_schedule(name: str, request: Request, queue: Queue) -> Schedule:
    """Let it run again, from its next tick on."""
    if not _storable(name) or not await changing(request, _if_done).aresume_schedule(name):
        raise _unknown(name)
    return await _required(queue, name)


@router.post(
    "/{name}/run", status_code=201, responses=problems(401, 403, 404, 409, 429, 503), **needs(Permission.OPERATE)
)
async def run_schedule(name: str, request: Request) -> Ran:
    """Make a task of the schedule at once, beside its ticks."""
    allow_submission(request)
    queue = changing(request, lambda made: made and {"id": str(made.id)})
    made = await queue.arun_schedule(name) if _storable(name) else None
    if made is None:
        raise _unknown(name)
    return Ran(id=made.id)


async def _required(queue: TaskQueue, name: str) -> Schedule:
    stored = await queue.aget_schedule(name) if _storable(name) else None
    if stored is None:
        raise _unknown(name)
    await queue.alearn_secrets()
    return _shown(queue, stored)


def _shown(queue: TaskQueue, stored: Stored) -> Schedule:
    return Schedule.of(queue.redactor.schedule(stored))


def _kept(queue: TaskQueue, stored: Stored, body: PutSchedule) -> dict[str, Any]:
    """The payload with the secrets that were not seen; another type of task gets none of them."""
    is_same = stored.plan.task == body.type
    secrets = _secrets(queue, stored) if is_same else list(queue.secret_places.of(body.type))
    try:
        kwargs = queue.redactor.restore(body.payload, stored.plan.kwargs if is_same else None, secrets)
    except MaskLeft as error:
        raise Refused(400, "masked-secret", str(error), field="payload") from error
    return {"kwargs": kwargs, "secrets": secrets}


def _secrets(queue: TaskQueue, stored: Stored) -> list[str]:
    """What is secret in its arguments: by its type, and by what it was made with."""
    return list(dict.fromkeys((*queue.secret_places.of(stored.plan.task), *(stored.plan.secrets or ()))))


def _if_done(done: bool) -> dict[str, Any] | None:
    return {} if done else None


def _storable(name: str) -> bool:
    return "\0" not in name


def _unknown(name: str) -> Refused:
    return Refused(404, "schedule-not-found", f"there is no schedule {name!r}")
