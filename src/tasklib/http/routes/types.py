"""Types of tasks, and workers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BeforeValidator, Field

from tasklib.http.admission.audit import AuditedRoute
from tasklib.http.parts import NOT_MODIFIED, Counts, Service, conditional
from tasklib.http.schemas.bounds import MOST_ROWS, ListPage
from tasklib.http.schemas.fields import Answer, TypeName
from tasklib.http.security.auth import Permission, needs

DAY_SECONDS: Final = 86_400.0
MOST_ENDED: Final = 100

router = APIRouter(prefix="/api", tags=["types and workers"], route_class=AuditedRoute)


class TypeInfo(Answer):
    """One type: its tasks by status, and its workers."""

    type: TypeName
    pending: int
    delayed: int
    waiting: int
    processing: int = Field(validation_alias="running")
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
    types: Annotated[list[str], BeforeValidator(lambda names: names[:MOST_ROWS])] = Field(validation_alias="names")
    concurrency: int
    running: int
    idle: bool
    alive: bool
    memory_bytes: int | None = Field(description="Memory of its process at the last heartbeat; null if unknown.")
    stuck_threads: int = Field(description="Threads that are stuck in timed-out tasks.")
    retention: Annotated[str | None, BeforeValidator(lambda rules: rules or None)] = Field(
        description="Its retention rules; null: it removes nothing."
    )
    release: str | None = Field(description="The release of the code it runs; null if it was given none.")


class EndedWorker(Answer):
    """A worker that ended within the last 24 hours."""

    instance: UUID
    worker_id: str
    host: str
    pid: int
    release: str | None
    started_at: datetime
    heartbeat_at: datetime = Field(description="Its last heartbeat.")
    ended_at: datetime = Field(description="When it stopped, or was declared lost.")
    ending: Literal["stopped", "lost"] = Field(description="`lost`: it was killed, or stopped answering.")
    tasks: int = Field(description="How many tasks it held then; others run them again.")


class Workers(Answer):
    """Workers known, the one with the latest heartbeat first."""

    workers: list[Worker]
    total: int = Field(description="How many there are.")
    ended: list[EndedWorker] = Field(description="Those that ended in the last 24 hours, the latest first; up to 100.")


@router.get("/types", response_model=Types, **needs(Permission.READ, 400, also=NOT_MODIFIED))
async def list_types(
    query: Annotated[ListPage, Query()], request: Request, service: Service, counts: Counts
) -> Response:
    """Every type that a stored task has or that a worker defines, up to 1000 at once."""
    statistics = service.statistics
    found = await counts.read(statistics.types, statistics.atypes, await counts.stats(live=True))
    return conditional(request, Types(types=[TypeInfo.of(each) for each in query.of(found)], total=len(found)))


@router.get("/workers", response_model=Workers, **needs(Permission.READ, 400, also=NOT_MODIFIED))
async def list_workers(query: Annotated[ListPage, Query()], request: Request, service: Service) -> Response:
    """Every worker instance known, up to 1000 at once; of the types of each the first 1000."""
    found = await service.queue.aworkers()
    ended = await service.statistics.aended_workers(seconds=DAY_SECONDS, limit=MOST_ENDED)
    shown = Workers(
        workers=[Worker.of(each) for each in query.of(found)],
        total=len(found),
        ended=[EndedWorker.of(each) for each in ended],
    )
    return conditional(request, shown)
