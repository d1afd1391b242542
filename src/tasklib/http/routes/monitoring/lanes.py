"""What ran where and when: lanes of worker slots, or of concurrency keys."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from tasklib.http.admission.audit import AuditedRoute
from tasklib.http.parts import Service
from tasklib.http.schemas.fields import Answer, Input, Moment, Name
from tasklib.http.security.auth import Permission, needs
from tasklib.service.insights import lanes

router = APIRouter(prefix="/api/metrics", tags=["metrics"], route_class=AuditedRoute)


class LanesQuery(Input):
    """The period to show, and what a lane stands for."""

    seconds: Annotated[int, Field(ge=1, le=7 * 86_400)] = Field(3600, description="How long a time.")
    until: Moment | None = Field(None, description="Its end; now if left out.")
    by: Literal["worker", "key"] = Field("worker", description="A lane for each worker, or each concurrency key.")
    type: Name | None = None


class AttemptInLane(Answer):
    """One attempt; times are seconds after `since`."""

    id: UUID
    type: int = Field(description="Which of `types`.")
    slot: int
    began: float
    ended: float
    outcome: str = Field(description="`completed`, `running`, `failed`, `lost`, `cancelled` …")


class CellInLane(Answer):
    """How much of one type a lane ran in one step of time."""

    step: int
    type: int = Field(description="Which of `types`.")
    busy: float = Field(description="How many slots were busy with it, on average.")
    ended: int
    failed: int
    lost: int


class LaneInfo(Answer):
    """One worker, or one concurrency key."""

    name: str
    slots: int = Field(description="How many ran at once at most, or may.")
    busy_seconds: float
    count: int
    failed: int
    lost: int = Field(description="Attempts whose worker was lost.")
    release: str | None
    alive: bool | None = Field(description="Whether the worker is; null for a concurrency key.")
    lost_at: list[datetime] = Field(description="When workers of this name were lost.")
    attempts: list[AttemptInLane] = Field(description="In the order in which they began; empty if added up.")
    cells: list[CellInLane] = Field(description="Empty if every attempt is there.")


class LaneInfos(Answer):
    """What ran in a period."""

    since: datetime
    until: datetime
    step_seconds: float | None = Field(description="Seconds of a step of `cells`; null if every attempt is there.")
    count: int = Field(description="How many attempts there are.")
    types: list[str] = Field(description="The types, the busiest first.")
    lanes: list[LaneInfo] = Field(description="The hundred busiest lanes, by name.")
    left_off: int = Field(description="How many lanes are not there.")
    made_after: datetime | None = Field(description="Tasks created before were not looked at; null if all were.")


@router.get("/lanes", **needs(Permission.READ, 400))
async def get_lanes(query: Annotated[LanesQuery, Query()], service: Service) -> LaneInfos:
    """What ran where and when: up to 3000 attempts one by one, more as averages over steps of time."""
    found = await service.lanes.ashow(seconds=query.seconds, until=query.until, by=query.by, name=query.type)
    busy: dict[str, float] = {}
    for lane in found.lanes:
        for _, each in lane.attempts:
            busy[each.name] = busy.get(each.name, 0.0) + each.ended - each.began
        for (_, name), cell in lane.cells.items():
            busy[name] = busy.get(name, 0.0) + cell.seconds
    types = sorted(busy, key=lambda name: (-busy[name], name))
    numbers = {name: number for number, name in enumerate(types)}
    return LaneInfos(
        since=datetime.fromtimestamp(found.since, UTC),
        until=datetime.fromtimestamp(found.until, UTC),
        step_seconds=found.step,
        count=found.count,
        types=types,
        lanes=[_lane(lane, found, numbers) for lane in found.lanes],
        left_off=found.left_off,
        made_after=found.made_after,
    )


def _lane(lane: lanes.Lane, found: lanes.LanesShown, numbers: dict[str, int]) -> LaneInfo:
    worker = found.workers.get(lane.name)
    step = found.step or 1.0
    return LaneInfo(
        name=lane.name,
        slots=lane.slots,
        busy_seconds=round(lane.seconds, 3),
        count=lane.count,
        failed=lane.failed,
        lost=lane.lost,
        release=None if worker is None else worker.release,
        alive=None if worker is None else worker.alive,
        lost_at=[] if worker is None else list(worker.lost_at),
        attempts=[_attempt(slot, each, found.since, numbers) for slot, each in lane.attempts],
        cells=[
            CellInLane(
                step=at,
                type=numbers[name],
                busy=round(cell.seconds / step, 4),
                ended=cell.ended,
                failed=cell.failed,
                lost=cell.lost,
            )
            for (at, name), cell in sorted(lane.cells.items())
        ],
    )


def _attempt(slot: int, each: lanes.LaneAttempt, since: float, numbers: dict[str, int]) -> AttemptInLane:
    return AttemptInLane(
        id=each.id,
        type=numbers[each.name],
        slot=slot,
        began=round(each.began - since, 4),
        ended=round(each.ended - since, 4),
        outcome=each.outcome,
    )
