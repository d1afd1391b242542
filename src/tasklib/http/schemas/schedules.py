"""Requests and answers about schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import AliasPath, Field

from tasklib.core.schedule import Schedule as Stored
from tasklib.core.schedule import cron_in_words
from tasklib.http.schemas.fields import Answer, Input, Moment, Name
from tasklib.http.schemas.inputs import TaskOptions, Timing


class CreatedSchedule(Answer):
    """A schedule that was created."""

    schedule: str = Field(validation_alias="name", description="The schedule's name.")
    type: str = Field(validation_alias=AliasPath("plan", "task"))
    next_run_at: datetime | None
    created_at: datetime


class Schedule(Answer):
    """A schedule."""

    name: str
    type: str
    cron: str | None
    every: float | None = Field(description="Seconds between runs.")
    tz: str
    words: str | None = Field(description="What the cron expression says; null for an interval.")
    payload: Any
    misfire: str
    overlap: str
    jitter: float
    starts_at: datetime | None
    ends_at: datetime | None
    options: dict[str, Any]
    next_run_at: datetime | None
    next_runs: list[datetime]
    last_run_at: datetime | None
    last_task_id: UUID | None
    paused_at: datetime | None
    paused_by: str | None
    error: str | None = Field(description="Why it cannot run; it stops no other. Null if nothing is wrong.")
    declared: bool = Field(description="Declared in code, and changed and removed with it.")
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, value: object) -> Self:
        """The schedule as HTTP shows it."""
        assert isinstance(value, Stored)
        stored, plan = value, value.plan
        plan_fields = ("cron", "every", "tz", "misfire", "overlap", "jitter", "starts_at", "ends_at")
        happened = ("next_run_at", "last_run_at", "last_task_id", "paused_at", "paused_by", "declared", "error")
        return cls(
            name=plan.name,
            type=plan.task,
            payload=plan.kwargs,
            options=dict(plan.options),
            words=cron_in_words(plan.cron),
            next_runs=stored.next_runs(5),
            created_at=stored.created_at,
            updated_at=stored.updated_at,
            **{each: getattr(plan, each) for each in plan_fields},
            **{each: getattr(stored, each) for each in happened},
        )


class Schedules(Answer):
    """Schedules, by name."""

    schedules: list[Schedule]
    total: int = Field(description="How many there are.")


class CronQuery(Input):
    """A cron expression that may become a schedule."""

    cron: Annotated[str, Field(min_length=1, max_length=200, examples=["0 9 * * mon-fri"])]
    tz: Annotated[str, Field(min_length=1, max_length=100)] = "UTC"


class CronRuns(Answer):
    """The meaning of a cron expression, and when it would run."""

    words: str | None
    next_runs: list[datetime]


class ScheduleOptions(TaskOptions):
    """Options of each task that the schedule submits."""


class PutSchedule(Timing):
    """A schedule to create or change."""

    type: Name
    payload: Any = Field(default_factory=dict, description="Any JSON value, `null` included.")
    jitter: Annotated[float, Field(ge=0, lt=1e9)] = 0.0
    starts_at: Moment | None = None
    options: ScheduleOptions = ScheduleOptions()

    def keywords(self) -> dict[str, Any]:
        """Its fields as keywords of `TaskQueue.add_schedule`."""
        same = {"jitter": self.jitter, "starts_at": self.starts_at, **self.timing()}
        return {**same, "task": self.type, "kwargs": self.payload, "options": self.options.scheduled()}


class CreateSchedule(PutSchedule):
    """A schedule to create."""

    name: Name


class Ran(Answer):
    """The task that a schedule made at once."""

    id: UUID
