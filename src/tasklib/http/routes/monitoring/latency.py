"""Queue wait and run times as counts by time and duration, and how they compare with an objective."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from tasklib.core.insights.histogram import PER_DOUBLING, bounds_of, share_within
from tasklib.http.admission.audit import AuditedRoute
from tasklib.http.parts import Service
from tasklib.http.routes.monitoring.series import SeriesQuery
from tasklib.http.schemas.fields import Answer
from tasklib.http.security.auth import Permission, needs
from tasklib.service.insights.objectives import Objective, objective_status

router = APIRouter(prefix="/api/metrics", tags=["metrics"], route_class=AuditedRoute)


class LatencyQuery(SeriesQuery):
    """The durations to show, and the objective to compare them with."""

    kind: Literal["wait", "run"] = "wait"
    within: Annotated[float, Field(gt=0, le=86_400)] = Field(5.0, description="Seconds of the objective.")
    target: Annotated[float, Field(gt=0, lt=100)] = Field(99.5, description="Percent that should be within them.")


class LatencyPoint(Answer):
    """One step."""

    at: datetime
    counts: list[int] = Field(description="How many fell into each of the ranges of `bounds`.")
    within: float | None = Field(description="The percentage within the objective; null if there were none.")


class Latency(Answer):
    """How long tasks waited or ran, as counts by time and duration."""

    step_seconds: int
    type: str | None
    kind: Literal["wait", "run"]
    bounds: list[float] = Field(description="The upper bound of each range in seconds, ascending; each twice the last.")
    points: list[LatencyPoint]
    count: int
    within: float | None = Field(description="The percentage within the objective over the whole time.")
    budget: float | None = Field(
        description="Percent of the error budget that are left: 100 if none missed it, below 0 if overspent."
    )


@router.get("/latency", **needs(Permission.READ, 400))
async def get_latency(query: Annotated[LatencyQuery, Query()], service: Service) -> Latency:
    """Queue wait or run time as a heat map, and how it compares with an objective."""
    kind: Literal["waits", "runs"] = "waits" if query.kind == "wait" else "runs"
    found = await service.statistics.alatency(
        seconds=query.seconds, step=query.chosen_step, kind=kind, name=query.type, until=query.until
    )
    whole = sum((histogram for _, histogram in found.points), Counter[int]())
    first = min(whole, default=1) // PER_DOUBLING
    rows = range(first, max(whole, default=1) // PER_DOUBLING + 1)
    stands = objective_status(Objective(query.type, query.kind, query.within, query.target), whole)
    return Latency(
        step_seconds=found.step,
        type=query.type,
        kind=query.kind,
        bounds=[bounds_of((row + 1) * PER_DOUBLING)[0] for row in rows],
        points=[
            LatencyPoint(
                at=datetime.fromtimestamp(at, UTC),
                counts=[sum(histogram[row * PER_DOUBLING + n] for n in range(PER_DOUBLING)) for row in rows],
                within=_percent(share_within(histogram, query.within)),
            )
            for at, histogram in found.points
        ],
        count=stands.count,
        within=stands.within,
        budget=stands.budget,
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else round(share * 100, 3)
