"""Requests and answers of workers in any language."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import BeforeValidator, Field, StrictInt

from tasklib.core.codec import number
from tasklib.http.schemas.fields import Answer, Input, Name, Seconds, Status, Text, TypeName, Whole, check_number

Version = Annotated[
    StrictInt, Field(ge=0, lt=2**53, description="The fencing token of the attempt, as the claim gave it.")
]
ErrorText = Annotated[str, Field(min_length=1, max_length=100_000)]


class Register(Input):
    """A worker to register."""

    worker_id: Text
    types: Annotated[list[Name], Field(min_length=1, max_length=1000)]
    concurrency: Annotated[Whole, Field(ge=1, le=10_000)] = 1
    host: Text = "remote"
    timeout_seconds: Annotated[Seconds, Field(ge=1, le=3600)] | None = Field(
        None, description="Without a heartbeat for this long the worker is dead and its tasks are recovered."
    )


class Registered(Answer):
    """A registered worker."""

    instance: UUID
    heartbeat_seconds: float = Field(description="How often to send a heartbeat.")
    timeout_seconds: float
    lease_seconds: float


class Claim(Input):
    """How many tasks, and how long to wait for the first."""

    limit: Annotated[Whole, Field(ge=1, le=100)] = 1
    wait_seconds: Annotated[float, BeforeValidator(check_number), Field(ge=0, le=30)] = 0.0


class ClaimedTask(Answer):
    """A task to work on now."""

    id: UUID
    type: TypeName
    payload: Any
    version: int = Field(description="The fencing token: send it with everything about this attempt.")
    attempt: int = Field(validation_alias="attempts")
    max_attempts: int
    timeout_seconds: Annotated[float | None, BeforeValidator(number)]
    tags: dict[str, Any]
    headers: dict[str, Any]
    locked_until: datetime | None


class ClaimedTasks(Answer):
    """Tasks to work on now, the most important first."""

    tasks: list[ClaimedTask]


class Held(Answer):
    """A task that the worker holds."""

    id: UUID
    version: int
    cancel_requested: bool


class Beat(Answer):
    """The tasks that the worker holds, as stored; release those it does not know."""

    tasks: list[Held]


class Complete(Input):
    """An attempt that succeeded."""

    version: Version
    result: Any = None


class Fail(Input):
    """An attempt that failed."""

    version: Version
    error: ErrorText
    retry: bool = Field(True, description="Whether another attempt may follow.")
    delay_seconds: Annotated[float, BeforeValidator(check_number), Field(ge=0, lt=1e9)] | None = Field(
        None, description="When; by the retry policy if left out."
    )


class End(Input):
    """An attempt that ended in another way."""

    version: Version


class Progress(Input):
    """How far an attempt has come."""

    version: Version
    progress: Annotated[float, BeforeValidator(check_number), Field(ge=0, le=1)]
    message: Text | None = None


class AttemptEnded(Answer):
    """The task after the attempt."""

    id: UUID
    status: Status
    attempts: int
    next_retry_at: datetime | None
