"""How many workers it takes, for autoscalers and for people."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BeforeValidator, Field, field_validator

from tasklib.http.admission.audit import AuditedRoute
from tasklib.http.parts import Counts, Service
from tasklib.http.schemas.bounds import MOST_ROWS
from tasklib.http.schemas.fields import Answer, Input, Name, TypeName
from tasklib.http.security.auth import Permission, needs
from tasklib.service.statistics import OBJECTIVE_SECONDS

router = APIRouter(prefix="/api", tags=["types and workers"], route_class=AuditedRoute)


class ScaleQuery(Input):
    """The types to consider, the time they may take, and the kind of worker."""

    type: Annotated[list[Name], Field(max_length=MOST_ROWS)] = Field([], description="All types if left out.")
    objective: Annotated[float, Field(gt=0, lt=1e9)] = Field(
        OBJECTIVE_SECONDS, description="Seconds within which what is due should have run."
    )
    concurrency: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None, description="Tasks that one worker runs at once; as those alive do on average if left out."
    )


class TypeScale(Answer):
    """One type: what waits and can run, what runs, how long it would take, and what it would take."""

    type: TypeName
    due: int = Field(description="Due, retries included, and not paused.")
    paused: int = Field(description="Due, but paused.")
    processing: int = Field(validation_alias="running")
    oldest_seconds: float | None = Field(description="For how long the first has been due; null if none is.")
    seconds_per_task: float | None = Field(description="Mean run time within the last hour; null if none ended.")
    seconds: float | None = Field(description="Until all of it has run, with the workers alive; null if none knows it.")
    slots: int = Field(description="Tasks at once: those that run, and enough for those that wait.")
    workers: int = Field(description="Workers that this takes.")
    workers_alive: int = Field(
        description="Live workers that take tasks of the type; one that is stopping takes no more."
    )


class Scale(Answer):
    """The work that waits and can run, and how many workers would do it within the objective."""

    objective_seconds: float
    slots_per_worker: int
    due: int
    paused: int
    processing: int = Field(validation_alias="running")
    oldest_seconds: float | None
    seconds: float | None
    slots: int
    workers: int = Field(description="How many workers there should be; 0 if nothing waits or runs.")
    workers_alive: int
    types: Annotated[list[TypeScale], BeforeValidator(lambda types: types[:MOST_ROWS])]
    total: int = Field(
        validation_alias="types",
        description="How many types there are; those asked for, or those with something to do.",
    )

    @field_validator("total", mode="before")
    @classmethod
    def _count(cls, types: object) -> object:
        return len(types) if isinstance(types, tuple) else types


@router.get("/scale", **needs(Permission.READ, 400))
async def scale(query: Annotated[ScaleQuery, Query()], service: Service, counts: Counts) -> Scale:
    """The work that waits and can run, by type, and how many workers it takes; up to 1000 types are shown.

    Running tasks count, so that an autoscaler removes no worker while its work goes on.
    """
    found = await counts.read(
        service.statistics.scale,
        service.statistics.ascale,
        names=query.type,
        objective_seconds=query.objective,
        slots_per_worker=query.concurrency,
    )
    return await counts.beside(lambda: Scale.of(found))
