"""Requests about tasks, validated before anything else sees them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from tasklib.core.lifecycle import Action
from tasklib.core.queue_info import TaskFilter
from tasklib.http.schemas.fields import (
    CURSOR_PATTERN,
    INT32,
    STATES,
    TAG_PATTERN,
    Input,
    Key,
    Moment,
    Name,
    Seconds,
    Tags,
    Text,
    Whole,
    check_number,
)
from tasklib.queue import check_states, task_filter
from tasklib.service.pages import Start

StatusFilter = Literal[
    "pending", "delayed", "waiting", "processing", "completed", "failed", "retrying", "cancelled", "buried"
]
MAX_PAGE = 100
MAX_BATCH = 1000


class Timing(Input):
    """When a schedule runs: by cron, or at an interval in seconds."""

    cron: Annotated[str, Field(min_length=1, max_length=200, examples=["0 9 * * mon-fri"])] | None = None
    every: Seconds | None = None
    tz: Annotated[str, Field(min_length=1, max_length=100)] = "UTC"
    misfire: Literal["one", "skip", "all"] = "one"
    overlap: Literal["allow", "skip"] = "allow"
    ends_at: Moment | None = None

    def timing(self) -> dict[str, Any]:
        """The same as keywords of `TaskQueue.add_schedule`."""
        return {name: getattr(self, name) for name in Timing.model_fields}


class Repeat(Timing):
    """Run the task repeatedly: by cron, or at an interval in seconds."""

    name: Name | None = None

    @model_validator(mode="after")
    def _either(self) -> Repeat:
        if (self.cron is None) == (self.every is None):
            raise ValueError("needs either cron or every, and not both")
        return self


class TaskOptions(Input):
    """Options of a task, submitted by a request or by a schedule."""

    max_attempts: Annotated[
        Annotated[Whole, Field(ge=1)] | None,
        Field(
            description="Attempts in all. 3 unless the type declares otherwise, as for everything submitted by name; "
            "task.submit() in Python makes 4, three retries after the first."
        ),
    ] = None
    priority: Whole | None = None
    tags: Tags | None = None
    timeout_seconds: Seconds | None = None
    concurrency_key: Key | None = None

    def scheduled(self) -> dict[str, Any]:
        """The same as `options` of a schedule."""
        given = self.model_dump(include=set(TaskOptions.model_fields), exclude_none=True)
        attempts = given.pop("max_attempts", None)
        return given if attempts is None else {**given, "max_retries": attempts - 1}


class CreateOptions(TaskOptions):
    """How the task is to be run."""

    run_after: Moment | None = None
    unique_key: Key | None = None
    on_conflict: Literal["return", "raise", "replace"] = "return"
    expires_at: Moment | None = None
    repeat: Repeat | None = None

    def submission(self) -> dict[str, Any]:
        """The same as keywords of `TaskQueue.enqueue`."""
        return {name: getattr(self, name) for name in self.model_fields_set if name != "repeat"}


class CreateTask(Input):
    """A task to submit."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "send_email",
                    "payload": {"to": "user@example.com", "subject": "Welcome"},
                    "options": {"maxAttempts": 3, "runAfter": "2030-01-15T10:00:00Z"},
                }
            ]
        }
    )

    type: Name
    payload: Any = Field(default_factory=dict, description="Any JSON value, `null` included.")
    # Many clients write null for what they leave out.
    options: Annotated[CreateOptions, BeforeValidator(lambda given: {} if given is None else given)] = CreateOptions()


class Resubmit(Input):
    """The changes for a new task that is otherwise a copy of an old one."""

    payload: Any = Field(description="The whole payload; `**********` stands for the secret stored there.")
    priority: Whole | None = None


class CreateTasks(Input):
    """Tasks to submit together, all or none."""

    tasks: Annotated[list[CreateTask], Field(min_length=1, max_length=MAX_BATCH)]


_MOMENTS = ("created_after", "created_before", "completed_after", "completed_before")


class Criteria(Input):
    """Selects tasks; a criterion that is left out matches every task."""

    type: Name | None = None
    status: Annotated[Sequence[StatusFilter], Field(max_length=20)] = ()
    search: Text | None = Field(
        None,
        description="Text in payload, tags or error, ignoring case; or a task's id, whole or its last 8 digits. "
        "Terms, all of which must fit: `args.order_id:42` (a value in the payload), `tag.team:media`, `worker:W`, "
        "`release:1.4.2`, `duration:>5s`, `wait:1s..5s`.",
        examples=["args.order_id:42 duration:>5s"],
    )
    unique_key: Text | None = None
    concurrency_key: Text | None = None
    fingerprint: Text | None = Field(None, description="Failed for good with this fingerprint, from `/api/errors`.")
    created_after: Moment | None = None
    created_before: Moment | None = None
    completed_after: Moment | None = Field(None, description="Ended at this moment or later, in whatever way.")
    completed_before: Moment | None = None

    def filter(self, *, tags: Tags | None = None, ids: Iterable[UUID] | None = None) -> TaskFilter:
        """The same as a filter of the queue."""
        states = states_of(self.status)
        same = {
            name: getattr(self, name) for name in ("search", "unique_key", "concurrency_key", "fingerprint", *_MOMENTS)
        }
        return task_filter(states or None, self.type, {**same, "tags": tags or None, "ids": ids})  # type: ignore[typeddict-item]


class ListQuery(Criteria):
    """Selects tasks, and a page of them."""

    id: Annotated[Sequence[UUID], Field(max_length=MAX_PAGE)] = Field((), description="Only these; may be repeated.")
    tag: Annotated[Sequence[Annotated[Text, Field(pattern=TAG_PATTERN)]], Field(max_length=20)] = Field(
        (), description="`key=value`; may be repeated."
    )
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50
    offset: Annotated[int, Field(ge=0, le=INT32)] = 0
    cursor: Annotated[str, Field(pattern=CURSOR_PATTERN)] | None = Field(
        None, description="`nextCursor` of the previous page; faster than `offset`, and stable while tasks are added."
    )
    total: bool = Field(True, description="Whether to count the matches.")

    def start(self) -> Start:
        """Where to start: a cursor continues after a page, and holds what is left of that page's offset."""
        if self.cursor is None:
            return Start(offset=self.offset)
        below, _, to_skip = self.cursor.partition("-")
        return Start(int(below, 16), int(to_skip, 16) if to_skip else self.offset)

    def wanted(self) -> TaskFilter:
        """The filter, with the tags."""
        return self.filter(tags=dict(each.split("=", 1) for each in self.tag), ids=self.id or None)


def cursor_of(start: Start) -> str:
    """The text with which a client continues from there."""
    return f"{start.below or 0:x}-{start.offset:x}" if start.offset else f"{start.below or 0:x}"


class CleanupQuery(Input):
    """Selects the tasks to remove."""

    older_than: Moment
    status: Annotated[Sequence[Literal["completed", "failed", "cancelled", "buried"]], Field(max_length=10)] = (
        "completed",
    )
    type: Name | None = None
    dry_run: bool = False


class PriorityInput(Input):
    """The new priority of a task; higher runs first."""

    priority: Whole


class BulkFilter(Criteria):
    """Selects the tasks to change; at least one condition is required."""

    ids: Annotated[list[UUID], Field(max_length=MAX_BATCH)] | None = None
    tags: Tags | None = None

    @model_validator(mode="after")
    def _says_something(self) -> BulkFilter:
        if "status" in self.model_fields_set:
            check_states(states_of(self.status))  # an empty list is refused
        # Without ids none is meant, and without a fingerprint those that have none; other empty values mean all.
        says = self.ids is not None or self.fingerprint is not None
        if not says and not any(getattr(self, name) for name in self.model_fields_set):
            raise ValueError("needs at least one condition, so that no request changes every task by accident")
        return self


class BulkAction(Input):
    """An action on every task that matches."""

    action: Action
    filter: BulkFilter
    priority: Whole | None = Field(None, description="The new priority; only with `prioritize`.")
    rate: Annotated[float, BeforeValidator(check_number), Field(gt=0, lt=1e9)] | None = Field(
        None,
        description="Only with `retry`: so many tasks come due in a second. Each gets its own due time, so nothing has "
        "to stay open; without it all are due at once.",
    )
    dry_run: bool = False

    @model_validator(mode="after")
    def _fits(self) -> BulkAction:
        if (self.action is Action.PRIORITIZE) != (self.priority is not None):
            raise ValueError("priority belongs to prioritize, and prioritize needs one")
        if self.rate is not None and self.action is not Action.RETRY:
            raise ValueError("rate belongs to retry")
        return self


def states_of(statuses: Iterable[str]) -> list[str]:
    """The states of the queue that HTTP statuses mean."""
    return [STATES.get(status, status) for status in statuses]
