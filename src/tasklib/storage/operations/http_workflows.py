"""Workflows of workers over HTTP: what a worker process does in memory is decided here, request by request.

Every write is fenced by the claim's version, and only the caller that registered the instance may write.  A request
that is sent again after a lost reply changes nothing, and gets the answer of the first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tasklib.core.codec import dumps
from tasklib.core.lifecycle import Ending
from tasklib.core.member_ids import new_group_id
from tasklib.core.task import Task, TaskState
from tasklib.errors import ClaimLost, ConfigurationError, NonDeterminism
from tasklib.storage.operations import attempts
from tasklib.storage.operations.http_workers import require_attempt, require_holder
from tasklib.storage.operations.limits import budgets
from tasklib.storage.operations.tasks import require_task
from tasklib.storage.operations.workflows import events, groups
from tasklib.storage.operations.workflows.steps import MOST_STEPS, load_steps, record_steps, state_of, step_row, timed
from tasklib.storage.rows import json_value, uuid
from tasklib.storage.statement import BEGIN, Operation, Row, Statement


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt of a worker over HTTP, and the caller that claims to run it."""

    task_id: UUID
    version: int
    owner: str


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A recorded step, as its worker sees it."""

    key: str
    number: int
    kind: str
    state: str
    """`open`, `done` or `failed`."""
    digest: str | None = None
    value: Any = None
    error: Any = None
    tries: int = 0
    seconds_left: float | None = None
    """Until its moment: the end of a sleep, or of the patience of a wait."""
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """What a workflow waits for: a moment, events, an answer, or children; each at most for so long."""

    key: str
    seconds: float | None = None
    events: Sequence[str] = ()
    question: Mapping[str, Any] | None = None
    is_group: bool = False

    @property
    def kind(self) -> str:
        """The kind of its step, where it does not wait for children."""
        return "ask" if self.question is not None else "wait" if self.events else "sleep"


@dataclass(frozen=True, slots=True)
class GroupState:
    """The children of one step."""

    group: UUID
    total: int
    sealed: bool
    step: StepRecord


@dataclass(frozen=True, slots=True)
class ChildResult:
    """A child with what became of it."""

    id: UUID
    name: str
    state: str
    result: Any
    error: str | None


def list_records(attempt: Attempt) -> Operation[list[StepRecord]]:
    """Everything that the task of a running attempt has recorded."""
    yield from _require_attempt(attempt)
    return (yield from load_records(str(attempt.task_id)))


def load_records(task_id: str) -> Operation[list[StepRecord]]:
    """Everything that a task has recorded, in its order."""
    return [_record(row, row["value"], row["error"]) for row in (yield from load_steps(task_id))]


def record_step(
    attempt: Attempt, key: str, digest: str | None, value: Any, error: Mapping[str, str] | None, seconds: float
) -> Operation[StepRecord]:
    """Record what a step returned, or its error; what is stored now, which is the first value that was."""
    yield BEGIN
    yield from _require_attempt(attempt)
    found = yield from _find(attempt, key, "step")
    if found is not None and found.state == "done":
        return found
    number, tries = (yield from _number(attempt)) if found is None else found.number, found.tries if found else 0
    state = "done" if error is None else "failed"
    row = step_row(key, number, "step", digest, tries + 1) | {"state": state, "value": value, "error": error}
    yield from record_steps([_of(attempt, timed(row, seconds))])
    stored = yield from _find(attempt, key, "step")
    assert stored is not None
    return stored


def open_wait(attempt: Attempt, wait: Wait) -> Operation[Task | None]:
    """Record the open step of a wait, so that whoever fills it finds it; None if the attempt is suspended already."""
    task = yield from require_task(attempt.task_id)
    if task.waits_for is not None and (yield from _was_suspended(attempt)):
        return None
    yield BEGIN
    yield from _require_attempt(attempt)
    if wait.is_group:
        yield from _require_children(attempt, wait.key)
        return task
    found = yield from _find(attempt, wait.key, wait.kind)
    awaited = [events.check_event(each) for each in wait.events]
    if found is not None and found.state == "open" and wait.kind != "sleep":
        asked = (awaited, wait.question, wait.seconds)
        yield from events.renew_wait(str(attempt.task_id), attempt.version, wait.key, *asked)
    elif found is None:
        number = yield from _number(attempt)
        row = step_row(wait.key, number, wait.kind) | {"until_in": wait.seconds, "ask": wait.question}
        yield from events.open_wait(str(attempt.task_id), attempt.version, timed(row, 0.0), awaited)
    return task


def take_or_suspend(attempt: Attempt, wait: Wait) -> Operation[StepRecord | None]:
    """What has become of the step of a wait; if it is open, end the attempt until it is filled: None."""
    yield BEGIN
    task = yield from _require_attempt(attempt)
    sleeps = not wait.is_group and wait.kind == "sleep"
    if not sleeps:
        yield from events.take_event(str(task.id), attempt.version, wait.key, wait.events)
    (row,) = yield Statement("get_record", {"id": str(task.id), "key": wait.key})
    step = _from_row(row)
    if step.state != "open":
        return step
    on = () if sleeps else (wait.key,)
    left = step.seconds_left
    ending = Ending.suspend(str(task.id), attempt.version, waits_for=_waits_for(wait), delay=left, on=on)
    if (yield from attempts.end_attempts([ending])):
        raise ClaimLost(task.id, attempt.version, task.state)
    yield Statement("wake_workers")
    return None


def park(attempt: Attempt, reason: str) -> Operation[None]:
    """End an attempt whose code does not fit what is recorded: it waits for other code, or for a person."""
    yield BEGIN
    task = yield from _require_attempt(attempt)
    ending = Ending.park(str(task.id), attempt.version, waits_for="code over HTTP", error=reason)
    if (yield from attempts.end_attempts([ending])):
        raise ClaimLost(task.id, attempt.version, task.state)


def add_children(
    attempt: Attempt,
    key: str,
    before: int,
    rows: Sequence[Mapping[str, Any]],
    *,
    group: UUID,
    sealed: bool,
    max_failures: int | None,
    seconds: float | None,
) -> Operation[GroupState]:
    """Store children after the `before` first, and say with `sealed` that no more will come.

    `group` is the id that a new group gets; that of the rows depends on it, so it must be the one of `find_group`.
    """
    yield BEGIN
    yield from _require_attempt(attempt)
    found = yield from _find(attempt, key, "map")
    task_id, version = str(attempt.task_id), attempt.version
    if found is None:
        number = yield from _number(attempt)
        row = step_row(key, number, "map") | {"until_in": seconds, "value": {"group": str(group)}}
        opened = {"id": str(group), "sealed": False, "max_failures": max_failures}
        yield from groups.open_group(task_id, version, timed(row, 0.0), opened, [])
    elif found.state == "open":
        patience = {"key": key, "seconds": seconds}
        yield from groups.restart_children(task_id, version, str(group), patience=patience)
    else:
        return (yield from _group_state(attempt, key))
    stored = yield from groups.look_at_group(task_id, version, str(group))
    if not stored["sealed"]:
        digest, last = _digest_of(rows), before + len(rows)
        total = stored["total"]
        if rows and total == before:
            total = yield from groups.add_members(task_id, version, str(group), before, rows, digest)
        elif total >= last and ((sealed and total > last) or (rows and total == last and digest != stored["digest"])):
            raise ConfigurationError(
                f"{total:,} children of {key!r} are stored, and others than these after the first {before:,}; send the "
                "same children in the same order in every run, or give changed ones another key"
            )
        if total < last:
            raise ConfigurationError(
                f"{total:,} children of {key!r} are stored, and these were sent as those after the first {before:,}; "
                f"send those after the first {total:,}, with before={total}"
            )
        if sealed:
            yield from groups.seal_group(task_id, version, str(group))
    return (yield from _group_state(attempt, key))


def find_group(attempt: Attempt, key: str) -> Operation[UUID]:
    """The id of a step's group, or a new one if it has none; the task is locked then, so that nothing else opens it."""
    yield BEGIN
    yield from _require_attempt(attempt)
    found = yield from _find(attempt, key, "map")
    if found is None:
        # Only here the task is locked before its group, which does not exist yet.
        yield Statement("lock_attempt", {"id": str(attempt.task_id), "version": attempt.version})
        found = yield from _find(attempt, key, "map")
    return new_group_id() if found is None else UUID(found.value["group"])


def list_children(attempt: Attempt, key: str, after: UUID | None) -> Operation[list[ChildResult]]:
    """The next children of a step with what became of them, in the order in which they were sent."""
    yield from _require_attempt(attempt)
    found = yield from _find(attempt, key, "map")
    if found is None:
        raise ConfigurationError(f"task {attempt.task_id} has no children under the key {key!r}")
    return [
        ChildResult(
            *(uuid(row["id"]), row["name"], row["state"]),
            result=(json_value(row["result"]) or {}).get("value"),
            error=row["error"],
        )
        for row in (yield from groups.list_members(found.value["group"], str(after or groups.FIRST)))
    ]


def spend(attempt: Attempt, key: str, name: str, cost: float) -> Operation[budgets.Taken]:
    """Take tokens from a budget as a step, once; what is missing if there are not enough."""
    yield BEGIN
    yield from _require_attempt(attempt)
    found = yield from _find(attempt, key, "spend")
    number = (yield from _number(attempt)) if found is None else found.number
    tries = 1 if found is None else found.tries + 1
    row = timed(step_row(key, number, "spend", None, tries), 0.0)
    answer = yield from budgets.spend(str(attempt.task_id), attempt.version, row, name, cost)
    return budgets.taken(answer, name, cost)


def require_holding(task_id: UUID, owner: str) -> Operation[None]:
    """Refuse a worker's caller that holds no running attempt of the task."""
    task = yield from require_task(task_id)
    if task.state is not TaskState.RUNNING:
        raise ClaimLost(task_id, task.version, task.state)
    yield from require_holder(task, owner)


def _require_attempt(attempt: Attempt) -> Operation[Task]:
    return (yield from require_attempt(attempt.task_id, attempt.version, attempt.owner))


def _was_suspended(attempt: Attempt) -> Operation[bool]:
    """Whether the reply to a suspension was lost: the attempt ended in one."""
    ending = Ending.suspend(str(attempt.task_id), attempt.version, waits_for="", delay=None)
    return (yield from attempts.is_recorded(*attempts.ended_as(ending)))


def _find(attempt: Attempt, key: str, kind: str) -> Operation[StepRecord | None]:
    rows = yield Statement("get_record", {"id": str(attempt.task_id), "key": key})
    if not rows:
        return None
    if rows[0]["kind"] != kind:
        raise NonDeterminism(key, f"a {rows[0]['kind']}", f"a {kind}")
    return _from_row(rows[0])


def _number(attempt: Attempt) -> Operation[int]:
    number: int = (yield Statement("next_step_number", {"id": str(attempt.task_id)}))[0]["number"]
    if number > MOST_STEPS:
        raise ConfigurationError(f"more than {MOST_STEPS:,} steps in one workflow; begin another task for the rest")
    return number


def _require_children(attempt: Attempt, key: str) -> Operation[None]:
    found = yield from _find(attempt, key, "map")
    if found is None:
        raise ConfigurationError(f"there are no children under the key {key!r}; store them first: POST …/children")
    if found.state != "open":
        return
    group, version = found.value["group"], attempt.version
    yield from groups.restart_children(str(attempt.task_id), version, group)
    stored = yield from groups.look_at_group(str(attempt.task_id), version, group)
    if not stored["sealed"]:
        raise ConfigurationError(f"more children of {key!r} may come; send the last with sealed=true before you wait")


def _group_state(attempt: Attempt, key: str) -> Operation[GroupState]:
    step = yield from _find(attempt, key, "map")
    assert step is not None
    found = yield from groups.look_at_group(str(attempt.task_id), attempt.version, step.value["group"])
    return GroupState(UUID(step.value["group"]), found["total"], found["sealed"], step)


def _digest_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """A hash of children that came in one request."""
    text = dumps([[row["name"], row["kwargs"]] for row in rows])
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _waits_for(wait: Wait) -> str:
    if wait.is_group:
        return f"children {wait.key}"
    if wait.question is not None:
        return f"answer {wait.key}"
    return f"event {' | '.join(wait.events)}" if wait.events else "sleep"


def _of(attempt: Attempt, row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "task_id": str(attempt.task_id), "version": attempt.version}


def _from_row(row: Row) -> StepRecord:
    return _record(row, json_value(row["value"]), json_value(row["error"]))


def _record(row: Mapping[str, Any], value: Any, error: Any) -> StepRecord:
    same = {name: row[name] for name in ("key", "number", "kind", "digest", "tries", "note")}
    return StepRecord(**same, state=state_of(row), value=value, error=error, seconds_left=row["left"])
