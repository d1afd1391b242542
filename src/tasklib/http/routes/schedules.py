"""Schedules: make, change, pause, resume, run now, remove."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from tasklib.core.schedule import cron_in_words
from tasklib.http import create
from tasklib.http.admission.audit import AuditedRoute, audit_of
from tasklib.http.admission.authorization import allow_submission
from tasklib.http.errors import Refused
from tasklib.http.parts import Service
from tasklib.http.schemas.bounds import ListPage
from tasklib.http.schemas.schedules import CreateSchedule, CronQuery, CronRuns, PutSchedule, Ran, Schedule, Schedules
from tasklib.http.security.auth import Permission, needs, principal_of
from tasklib.service.service import QueueService


def _stored_name(name: str) -> str:
    """The name; 404 if it holds a NUL character, which no stored name can."""
    if "\0" in name:
        raise _unknown(name)
    return name


Name = Annotated[str, Depends(_stored_name)]

router = APIRouter(prefix="/api/schedules", tags=["schedules"], route_class=AuditedRoute)
cron_router = APIRouter(prefix="/api/cron", tags=["schedules"], route_class=AuditedRoute)


@cron_router.get("", **needs(Permission.READ, 400))
async def preview_cron(query: Annotated[CronQuery, Query()], service: Service) -> CronRuns:
    """The meaning of a cron expression, and when it would run next; nothing is stored."""
    runs = await service.schedules.apreview(query.cron, query.tz)
    return CronRuns(words=cron_in_words(query.cron), next_runs=list(runs))


@router.get("", **needs(Permission.READ, 400))
async def list_schedules(query: Annotated[ListPage, Query()], service: Service) -> Schedules:
    """Every schedule, by name, with its next five runs; up to 1000 at once."""
    found = await service.schedules.aall()
    return Schedules(schedules=[Schedule.of(each) for each in query.of(found)], total=len(found))


@router.post("", status_code=201, **needs(Permission.OPERATE, 400, 409, 413))
async def create_schedule(body: CreateSchedule, request: Request, service: Service) -> Schedule:
    """Create a schedule."""
    if await service.schedules.aget(body.name) is not None:
        detail = f"there is a schedule {body.name!r} already; change it with PUT"
        raise Refused(409, "schedule-exists", detail, field="name")
    return Schedule.of(
        await create.put_schedule(service, body.name, body.keywords(), audit_of(request, name=body.name))
    )


@router.get("/{name:tasklib_name}", **needs(Permission.READ, 404))
async def get_schedule(name: Name, service: Service) -> Schedule:
    """One schedule."""
    return await _required(service, name)


@router.put("/{name:tasklib_name}", **needs(Permission.OPERATE, 400, 413))
async def put_schedule(name: str, body: PutSchedule, request: Request, service: Service) -> Schedule:
    """Create a schedule, or change the one of that name."""
    return Schedule.of(await create.put_schedule(service, name, body.keywords(), audit_of(request)))


@router.delete("/{name:tasklib_name}", status_code=204, **needs(Permission.OPERATE, 404))
async def remove_schedule(name: Name, request: Request, service: Service) -> None:
    """Delete a schedule; tasks it has submitted stay."""
    if not await service.schedules.aremove(name, audit=audit_of(request)):
        raise _unknown(name)


@router.post("/{name:tasklib_name}/pause", **needs(Permission.OPERATE, 404))
async def pause_schedule(name: Name, request: Request, service: Service) -> Schedule:
    """Pause a schedule: no more ticks run."""
    by = principal_of(request).name
    if not await service.schedules.apause(name, by=by, audit=audit_of(request)):
        raise _unknown(name)
    return await _required(service, name)


@router.post("/{name:tasklib_name}/resume", **needs(Permission.OPERATE, 404))
async def resume_schedule(name: Name, request: Request, service: Service) -> Schedule:
    """Resume a schedule, from its next tick on."""
    if not await service.schedules.aresume(name, audit=audit_of(request)):
        raise _unknown(name)
    return await _required(service, name)


@router.post("/{name:tasklib_name}/run", status_code=201, **needs(Permission.OPERATE, 404, 409, 429))
async def run_schedule(name: Name, request: Request, service: Service) -> Ran:
    """Submit a task of the schedule now, in addition to its ticks."""
    allow_submission(request)
    made = await service.schedules.arun(name, audit=audit_of(request))
    if made is None:
        raise _unknown(name)
    return Ran(id=made.id)


async def _required(service: QueueService, name: str) -> Schedule:
    stored = await service.schedules.aget(name)
    if stored is None:
        raise _unknown(name)
    return Schedule.of(stored)


def _unknown(name: str) -> Refused:
    return Refused(404, "schedule-not-found", f"there is no schedule {name!r}")
