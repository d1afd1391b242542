"""Series for charts: attempts by outcome, wait and run times, and queue depth."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Self
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field, model_validator

from tasklib.http.admission.audit import AuditedRoute
from tasklib.http.parts import NOT_MODIFIED, Service, conditional
from tasklib.http.schemas.bounds import MOST_ROWS, busiest
from tasklib.http.schemas.fields import Answer, Input, Moment, Name
from tasklib.http.security.auth import Permission, needs
from tasklib.service import statistics

router = APIRouter(prefix="/api/metrics", tags=["metrics"], route_class=AuditedRoute)

MAX_POINTS = 1500
MOST_CHOSEN = 240
NOTHING = statistics.Durations(None, None, None)


class TypesQuery(Input):
    """The period to show."""

    seconds: Annotated[int, Field(ge=60, le=30 * 86_400)] = Field(3600, description="How far back.")
    until: Moment | None = Field(None, description="The end of the time; now if left out.")


class SeriesQuery(TypesQuery):
    """The period to show, its steps, and one type or all."""

    step: Annotated[int, Field(ge=60, le=86_400, multiple_of=60)] | None = Field(
        None, description="Seconds in a point, whole minutes; 60 to 240 points if left out."
    )
    type: Name | None = None

    @model_validator(mode="after")
    def _not_too_many(self) -> Self:
        if self.step is not None and self.seconds / self.step > MAX_POINTS:
            raise ValueError(f"gives more than {MAX_POINTS} points: make step larger or seconds smaller")
        return self

    @property
    def chosen_step(self) -> int:
        """The step asked for, or one that gives 60 to 240 points."""
        return self.step or next(each for each in _STEPS if each * MOST_CHOSEN >= self.seconds)


class Durations(Answer):
    """p50, p95 and p99 in seconds; null without data."""

    p50: float | None
    p95: float | None
    p99: float | None


class Outcomes(Answer):
    """How many attempts ended how."""

    completed: int = 0
    failed: int = Field(0, description="Failed for good.")
    retried: int = Field(0, description="Failed, and another attempt follows.")
    cancelled: int = 0
    buried: int = 0


class Depth(Answer):
    """Waiting and running tasks at the peak."""

    due: int
    delayed: int
    retrying: int
    running: int


class Point(Answer):
    """One step of the series."""

    at: datetime = Field(description="When it began.")
    ended: Outcomes
    wait: Durations = Field(description="From due to started, of first attempts.")
    run: Durations
    depth: Depth | None = Field(description="Null if it was not sampled.")


class Series(Answer):
    """The steps of the requested time, the oldest first; the last one is incomplete."""

    step_seconds: int
    type: str | None
    points: list[Point]


class TypeWork(Answer):
    """Attempts of one type."""

    type: str
    ended: Outcomes
    wait: Durations
    run: Durations


class TypesWork(Answer):
    """Attempts of each type, by name; the 1000 with the most attempts."""

    seconds: int
    all: TypeWork = Field(description="All types together; its `type` is empty.")
    types: list[TypeWork]


class OldestWaiting(Answer):
    """The task that has been due the longest; all null if none is due."""

    id: UUID | None = None
    type: str | None = Field(default=None, validation_alias="name")
    due_at: datetime | None = None


@router.get("/oldest", **needs(Permission.READ))
async def get_oldest_waiting(service: Service) -> OldestWaiting:
    """The task that has been due the longest, including paused and limited ones."""
    found = await service.statistics.aoldest_waiting()
    return OldestWaiting() if found is None else OldestWaiting.of(found)


@router.get("/series", response_model=Series, **needs(Permission.READ, 400, also=NOT_MODIFIED))
async def get_series(query: Annotated[SeriesQuery, Query()], request: Request, service: Service) -> Response:
    """Attempts by outcome, wait and run times, and queue depth, step by step."""
    found = await service.statistics.aseries(
        seconds=query.seconds, step=query.chosen_step, name=query.type, until=query.until
    )
    points = [_point(*each) for each in found.points]
    return conditional(request, Series(step_seconds=found.step, type=query.type, points=points))


@router.get("/types", response_model=TypesWork, **needs(Permission.READ, 400, also=NOT_MODIFIED))
async def get_types_work(query: Annotated[TypesQuery, Query()], request: Request, service: Service) -> Response:
    """Attempts by outcome and their durations, by type."""
    found = await service.statistics.awork_by_type(seconds=query.seconds, until=query.until)
    together = TypeWork(type="", **_work(await service.statistics.awork(seconds=query.seconds, until=query.until)))
    named = {each.name: each for each in found}
    chosen = busiest(named, lambda name: named[name].outcomes, MOST_ROWS)
    types = [TypeWork(type=name, **_work(named[name])) for name in chosen]
    return conditional(request, TypesWork(seconds=query.seconds, all=together, types=types))


def _point(at: int, work: statistics.Work | None, depth: statistics.Depth | None) -> Point:
    shown = None if depth is None else Depth.of(depth)
    return Point(at=datetime.fromtimestamp(at, UTC), depth=shown, **_work(work))


def _work(work: statistics.Work | None) -> dict[str, Any]:
    return {
        "ended": Outcomes(**({} if work is None else work.outcomes)),
        "wait": Durations.of(NOTHING if work is None else work.wait),
        "run": Durations.of(NOTHING if work is None else work.run),
    }


_STEPS = (60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600)
