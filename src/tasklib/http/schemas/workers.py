"""Requests and answers of workers in any language."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Protocol, Self, TypeVar
from uuid import UUID

from pydantic import BeforeValidator, Field, StrictInt, model_validator

from tasklib.core.codec import dumps, number
from tasklib.http.schemas.fields import (
    Answer,
    Input,
    Moment,
    Name,
    Seconds,
    Status,
    Text,
    TypeName,
    Whole,
    check_number,
)

Version = Annotated[
    StrictInt, Field(ge=0, lt=2**53, description="The fencing token of the attempt, as the claim gave it.")
]
MOST_BYTES: Final = 256 * 1024
"""Of recorded steps in one answer."""
BYTES_BESIDE: Final = 200
"""About so many are in a step beside its key and value."""
StepKey = Annotated[Text, Field(max_length=200)]
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


class StepLike(Protocol):
    """A field whose text says how long a recorded step is."""

    @property
    def key(self) -> str: ...
    @property
    def value(self) -> Any: ...
    @property
    def error(self) -> Any: ...


StepT = TypeVar("StepT", bound=StepLike)


def fitting(steps: Sequence[StepT]) -> Sequence[StepT]:
    """The first steps, as many as fit into one answer, at least one."""
    size = 0
    for position, step in enumerate(steps):
        size += len(dumps([step.value, step.error])) + len(step.key) + BYTES_BESIDE
        if size > MOST_BYTES and position:
            return steps[:position]
    return steps


class RecordedStep(Answer):
    """A recorded step of a workflow, as its worker sees it."""

    key: str
    number: int
    kind: str = Field(description="`step`, `sleep`, `wait`, `ask`, `run`, `map` or `spend`.")
    state: str = Field(description="`open`, `done` or `failed`.")
    digest: str | None
    value: Any
    error: Any
    tries: int
    seconds_left: float | None = Field(description="Until the end of a sleep, or of a wait's patience.")
    note: str | None


class RecordedSteps(Answer):
    """Recorded steps in their order, as many as fit; `next` is where the rest is, if there is more."""

    steps: list[RecordedStep]
    next: str | None


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
    steps: list[RecordedStep] | None = Field(
        default_factory=list, description="What a workflow has recorded; null if it is more than 256 KB."
    )
    steps_url: str | None = Field(None, description="Where recorded steps are, if they are more than 256 KB.")

    @classmethod
    def with_steps(cls, task: Any, steps: Sequence[StepLike] | None, root: str) -> Self:
        """The task with its recorded steps, or with the address of more than fit."""
        shown = cls.of(task)
        if not steps:
            return shown
        if len(fitting(steps)) < len(steps):
            url = f"{root}/api/tasks/{task.id}/steps/recorded?version={task.version}"
            return shown.model_copy(update={"steps": None, "steps_url": url})
        return shown.model_copy(update={"steps": [RecordedStep.of(step) for step in steps]})


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
    step: StepKey | None = Field(
        None, description="The recorded step whose failure this is: the next attempt may run it again."
    )


class End(Input):
    """An attempt that ended in another way."""

    version: Version


class SnoozeInput(Input):
    """An attempt that asks to run again later."""

    version: Version
    delay_seconds: Annotated[float, BeforeValidator(check_number), Field(ge=0, lt=1e9)] = Field(
        description="After how many seconds the task is due again."
    )


class LineInput(Input):
    """A line that the attempt logs."""

    level: Literal["INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"
    text: Annotated[str, Field(max_length=100_000, description="Of which 500 characters are kept.")]


class LogInput(Input):
    """Lines that an attempt logs, in their order."""

    version: Version
    lines: Annotated[list[LineInput], Field(min_length=1, max_length=200)]


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


class PageQuery(Input):
    """The attempt that asks, and where the page begins."""

    version: Annotated[int, Field(ge=0, lt=2**53)]
    after: Annotated[int, Field(ge=0, lt=2**53)] = 0


class ChildQuery(Input):
    """The attempt that asks, and the child after which the page begins."""

    version: Annotated[int, Field(ge=0, lt=2**53)]
    after: UUID | None = None


class StepError(Input):
    """Why a step failed."""

    type: Annotated[Text, Field(max_length=200)] = "Error"
    message: Annotated[str, Field(max_length=100_000)] = ""


class StepInput(Input):
    """A step that ran: its value, or its error."""

    version: Version
    key: StepKey
    digest: Annotated[Text, Field(max_length=200)] | None = Field(
        None, description="Of the function and its arguments, to compare with the recorded one."
    )
    value: Any = None
    error: StepError | None = None
    seconds: Annotated[float, BeforeValidator(check_number), Field(ge=0, lt=1e9)] = Field(
        0.0, description="How long it took."
    )

    @model_validator(mode="after")
    def _one(self) -> StepInput:
        if self.error is not None and self.value is not None:
            raise ValueError("a step has a value or an error, not both")
        return self


class SuspendInput(Input):
    """What a workflow waits for: a moment, events, a person's answer, or its children."""

    version: Version
    key: StepKey
    until: Moment | None = Field(None, description="The end of a sleep, or when a wait gives up.")
    events: Annotated[list[Annotated[Text, Field(max_length=200)]], Field(max_length=100)] = Field(
        default_factory=list, description="Names of events; the first one to come counts."
    )
    ask: Text | None = Field(None, description="A question to a person; its first answer counts.")
    answer_schema: dict[str, Any] = Field(default_factory=dict, description="What an answer looks like: JSON Schema.")
    group: bool = Field(False, description="Wait for the children that were stored under the key.")
    mismatch: ErrorText | None = Field(
        None, description="What the code asks for instead of what is recorded: the task is parked for other code."
    )

    @model_validator(mode="after")
    def _one(self) -> SuspendInput:
        given = [bool(self.events), self.ask is not None, self.group, self.mismatch is not None]
        if sum(given) > 1 or not (any(given) or self.until is not None):
            raise ValueError("waits for one of until (a sleep), events, ask, group; or says mismatch")
        if (self.group or self.mismatch is not None) and self.until is not None:
            raise ValueError("until belongs to a sleep, events or ask; for children give it to …/children")
        return self


class Suspended(Answer):
    """The attempt has ended without being spent; the task is claimed again when it can go on."""

    suspended: bool = True


class ChildrenInput(Input):
    """Children of a workflow, or more of them."""

    version: Version
    key: StepKey
    type: Name
    payloads: Annotated[list[Any], Field(max_length=1000)]
    sealed: bool = Field(True, description="Whether these are the last.")
    before: Annotated[Whole, Field(ge=0)] = Field(0, description="How many were sent before these.")
    max_failures: Annotated[Whole, Field(ge=0)] | None = Field(
        None, description="With more failed children the rest is cancelled; null waits for all."
    )
    until: Moment | None = Field(None, description="When the wait for them gives up; as the first request says.")


class ChildrenStored(Answer):
    """The children that are stored now."""

    key: str
    group: UUID
    total: int
    sealed: bool
    state: str = Field(description="`open` until all have ended, then `done` or `failed`.")
    value: Any
    error: Any


class Child(Answer):
    """A child with what became of it."""

    id: UUID
    type: TypeName
    status: Status
    result: Any
    error: str | None


class ChildPage(Answer):
    """Children in the order in which they were sent; `next` is where the rest is, if there is more."""

    children: list[Child]
    next: str | None
