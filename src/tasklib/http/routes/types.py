"""Kinds of task and the workers that know them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from tasklib.core.task import WorkerInfo
from tasklib.http.admission.audit import AuditedRoute
from tasklib.http.errors import problems
from tasklib.http.parts import Counts, Service
from tasklib.http.schemas.bounds import MOST_ROWS, Part
from tasklib.http.schemas.fields import Answer
from tasklib.http.security.auth import Permission, needs

router = APIRouter(prefix="/api", tags=["types and workers"], route_class=AuditedRoute)


class TypeInfo(Answer):
    """One type: its tasks by status, and its workers."""

    type: str
    pending: int
    delayed: int
    processing: int
    completed: int
    failed: int
    retrying: int
    cancelled: int
    buried: int
    workers: int
    paused: bool


class Types(Answer):
    """Types, by name."""

    types: list[TypeInfo]
    total: int = Field(description="How many there are.")


class Worker(Answer):
    """A worker as it last reported itself."""

    instance: UUID
    worker_id: str
    host: str
    pid: int
    started_at: datetime
    heartbeat_at: datetime
    types: list[str]
    concurrency: int
    running: int
    idle: bool
    alive: bool
    memory_bytes: int | None = Field(description="Memory of its process at the last heartbeat; null if unknown.")
    stuck_threads: int = Field(description="Threads that are stuck in timed-out tasks.")
    retention: str | None = Field(description="Its retention rules; null: it removes nothing.")


class Workers(Answer):
    """Workers known, the most recently heard first."""

    workers: list[Worker]
    total: int = Field(description="How many there are.")


@router.get("/types", responses=problems(400, 401, 403, 503), **needs(Permission.READ))
async def list_types(query: Annotated[Part, Query()], service: Service, counts: Counts) -> Types:
    """Every type that a stored task has or that a worker knows, up to 1000 at once."""
    same = ("pending", "delayed", "completed", "failed", "retrying", "cancelled", "buried", "workers", "paused")
    found = await service.statistics.atypes(await counts.stats(live=True))
    shown = [
        TypeInfo(type=each.name, processing=each.running, **{name: getattr(each, name) for name in same})
        for each in query.of(found)
    ]
    return Types(types=shown, total=len(found))


@router.get("/workers", responses=problems(400, 401, 403, 503), **needs(Permission.READ))
async def list_workers(query: Annotated[Part, Query()], service: Service) -> Workers:
    """Every worker instance known, up to 1000 at once; of the types of each the first 1000."""
    found = await service.queue.aworkers()
    return Workers(workers=[_shown(each) for each in query.of(found)], total=len(found))


def _shown(worker: WorkerInfo) -> Worker:
    same = {name: getattr(worker, name) for name in Worker.model_fields if name not in {"types", "retention"}}
    return Worker(types=list(worker.names[:MOST_ROWS]), retention=worker.retention or None, **same)
