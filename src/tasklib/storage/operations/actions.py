"""What people do to tasks: retry, cancel, prioritize, delete, one or many, and clean up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from tasklib.core.codec import dumps
from tasklib.core.lifecycle import ACTIONS, Action, allows, refusal, states_for
from tasklib.core.queue_info import TaskFilter
from tasklib.core.task import Task, TaskState
from tasklib.errors import UniqueConflict
from tasklib.storage.operations.reading.lists import filter_params
from tasklib.storage.operations.tasks import get_task, require_task
from tasklib.storage.operations.workflows.retrying import (
    begin_anew,
    lock_skipped,
    require_retryable,
    resume_from,
    resume_tasks,
)
from tasklib.storage.rows import uuid
from tasklib.storage.statement import BEGIN, COMMIT, DONE_BEFORE, Operation, Row, Statement, recall

STEP = 1000
"""Rows a bulk action touches in one transaction."""

OnProgress = Callable[[int], None]
"""Called after each step of a bulk action with how many tasks it has changed so far."""


@dataclass(slots=True)
class Pace:
    """So many tasks come due in a second; counted on over all that it has paced."""

    rate: float
    given: int = 0

    def delays(self, ids: Iterable[object]) -> str:
        """The next tasks with the seconds after which each is due, as JSON."""
        numbered = enumerate(map(str, ids), self.given)
        batch = [{"id": task_id, "delay": number / self.rate} for number, task_id in numbered]
        self.given += len(batch)
        return dumps(sorted(batch, key=lambda each: str(each["id"])))


BEFORE = "before"
"""In the memory of an action that has sent all its statements, so that only the reply to COMMIT can be missing: the
task as it was before."""

_RETRYABLE: Final = dumps(sorted({str(phase.state) for phase in ACTIONS[Action.RETRY].possible}))

_STATEMENTS: Final[Mapping[Action, str]] = {
    Action.CANCEL: "cancel_tasks",
    Action.PRIORITIZE: "set_priorities",
    Action.DELETE: "delete_tasks",
}

_COUNTED_BY: Final[Mapping[Action, str]] = {
    Action.RETRY: "count_retries",
    Action.CANCEL: "count_live",
    Action.PRIORITIZE: "count_live",
    Action.DELETE: "count_deletes",
}


def retry_task(task_id: UUID, *, from_step: str | None = None, from_scratch: bool = False) -> Operation[Task]:
    """Restart the task from zero attempts: a workflow at its failed step, from one of its steps, or from scratch."""
    yield BEGIN
    memory = yield from recall()
    started = yield from _started_before(task_id, memory)
    if started is not None:
        return started
    task = yield from require_task(task_id)
    if not allows(task, Action.RETRY):
        raise refusal(Action.RETRY, task)
    if task.unique_key is not None:
        holder = yield from _live_holder(task)
        if holder is not None:
            raise UniqueConflict(task.name, task.unique_key, holder)
    yield from require_retryable(task, from_scratch=from_scratch)
    if from_step is not None:
        changed = yield from resume_from(task, from_step)
    else:
        retry = begin_anew if from_scratch else resume_tasks
        changed = yield from retry([str(task_id)], dumps([str(task.state)]))
    if not changed:
        raise (yield from _refusal(task_id, Action.RETRY))
    yield Statement("wake_workers")
    answer = yield from require_task(task_id)
    memory[BEFORE] = _mark(task)
    return answer


def cancel_task(task_id: UUID) -> Operation[Task]:
    """Cancel a waiting task at once, or ask the worker of a running one to stop."""
    yield BEGIN
    memory = yield from recall()
    if BEFORE in memory:
        task = yield from get_task(task_id)
        if task is not None and (task.state is TaskState.CANCELLED or task.cancel_requested_at is not None):
            memory[DONE_BEFORE] = True
            return task
    changed = yield Statement("cancel_tasks", {"ids": _ids([task_id])})
    if not changed:
        raise (yield from _refusal(task_id, Action.CANCEL))
    answer = yield from require_task(task_id)
    memory[BEFORE] = None
    return answer


def set_priority(task_id: UUID, priority: int) -> Operation[Task]:
    """Change the priority of a task that has not ended."""
    yield BEGIN
    if not (yield Statement("set_priorities", {"ids": _ids([task_id]), "priority": priority})):
        raise (yield from _refusal(task_id, Action.PRIORITIZE))
    return (yield from require_task(task_id))


def delete_task(task_id: UUID) -> Operation[Task]:
    """Remove a finished task; the task as it was."""
    yield BEGIN
    memory = yield from recall()
    task = yield from get_task(task_id)
    if task is None and BEFORE in memory:
        memory[DONE_BEFORE] = True
        deleted: Task = memory[BEFORE]
        return deleted
    if task is None or not (yield Statement("delete_tasks", {"ids": _ids([task_id])})):
        raise (yield from _refusal(task_id, Action.DELETE))
    memory[BEFORE] = task
    return task


def act_on_matching(
    action: Action,
    which: TaskFilter,
    *,
    priority: int | None = None,
    pace: Pace | None = None,
    on_progress: OnProgress | None = None,
) -> Operation[int]:
    """Do it to every matching task in a state that allows it; how many that was.

    A retry skips a task whose unique key is taken again, and workflows that were undone; with a pace, each task has its
    own due time, so that nothing has to go on for the pace to be kept.
    """

    def act(rows: Sequence[Row]) -> Operation[int]:
        retry = action is Action.RETRY
        ids = (yield from without_taken_keys(rows)) if retry else [uuid(row["id"]) for row in rows]
        if retry:
            changed = yield from resume_tasks([str(task_id) for task_id in ids], _RETRYABLE)
            if pace is not None:
                yield Statement("delay_tasks", {"batch": pace.delays(row["id"] for row in changed)})
            yield Statement("wake_workers")
            return len(changed)
        return len((yield Statement(_STATEMENTS[action], {"ids": _ids(ids), "priority": priority})))

    wanted = replace(which, states=states_for(action, which.states))
    return (yield from in_steps(wanted, act, on_progress, retrying=action is Action.RETRY))


def count_matching(action: Action, which: TaskFilter) -> Operation[int]:
    """How many tasks `act_on_matching` would change now."""
    wanted = replace(which, states=states_for(action, which.states))
    return int((yield Statement(_COUNTED_BY[action], filter_params(wanted)))[0]["count"])


def cleanup_tasks(
    older_than: datetime, states: Iterable[str], name: str | None = None, on_progress: OnProgress | None = None
) -> Operation[int]:
    """Remove tasks that ended before a moment, a bounded number in each transaction."""
    deleted: int = 0
    after = 0
    until = (yield Statement("last_position"))[0]["seq"]
    wanted = {
        "older_than": older_than,
        "states": dumps(states_for(Action.DELETE, states)),
        "name": name,
        "until": until,
    }
    while True:
        yield BEGIN
        row = (yield Statement("cleanup_tasks", {**wanted, "after": after, "limit": STEP}))[0]
        yield COMMIT
        deleted += row["deleted"]
        after = row["last"]
        if on_progress:
            on_progress(deleted)
        if row["deleted"] < STEP:
            return deleted


def in_steps(
    which: TaskFilter,
    act: Callable[[Sequence[Row]], Operation[int]],
    on_progress: OnProgress | None = None,
    *,
    retrying: bool = False,
) -> Operation[int]:
    """Act on all matching tasks that exist now, in insertion order, one bounded transaction after the other."""
    changed, after = 0, 0
    until = (yield Statement("last_position"))[0]["seq"]
    while True:
        yield BEGIN
        wanted = filter_params(which)
        page = yield Statement("pick_matching", {**wanted, "after": after, "until": until, "limit": STEP})
        if page:
            ids = sorted(str(row["id"]) for row in page)
            if retrying:
                yield from lock_skipped(ids)
            rows = yield Statement("lock_matching", {**wanted, "picked": dumps(ids)})
            changed += yield from act(sorted(rows, key=lambda row: row["seq"]))
        yield COMMIT
        if on_progress:
            on_progress(changed)
        if len(page) < STEP:
            return changed
        after = page[-1]["seq"]


def without_taken_keys(rows: Sequence[Row]) -> Operation[list[UUID]]:
    """The ids that can come alive again: the first of each unique key, and none whose key another live task holds."""
    keyed = [row for row in rows if row["unique_key"] is not None]
    free = [uuid(row["id"]) for row in rows if row["unique_key"] is None]
    if keyed:
        keys = [{"id": str(row["id"]), "name": row["name"], "unique_key": row["unique_key"]} for row in keyed]
        found = yield Statement("find_live_keys", {"keys": dumps(keys)})
        holders = {(row["name"], row["live_key"]): uuid(row["id"]) for row in found if row["live_key"] is not None}
        for row in keyed:
            task_id = uuid(row["id"])
            if holders.setdefault((row["name"], row["unique_key"]), task_id) == task_id:
                free.append(task_id)
    return free


def _live_holder(task: Task) -> Operation[UUID | None]:
    key = {"id": str(task.id), "name": task.name, "unique_key": task.unique_key}
    rows = yield Statement("find_live_keys", {"keys": dumps([key])})
    return next((uuid(row["id"]) for row in rows if uuid(row["id"]) != task.id), None)


def _started_before(task_id: UUID, memory: dict[str, Any]) -> Operation[Task | None]:
    """The task, if an earlier try of this call has restarted it, whatever has happened to it since."""
    task = (yield from get_task(task_id)) if BEFORE in memory else None
    if task is None or memory[BEFORE] == _mark(task):
        return None
    memory[DONE_BEFORE] = True
    return task


def _mark(task: Task) -> tuple[object, ...]:
    """What changes whenever something happens to the task."""
    return task.state, task.version, task.attempts, task.completed_at, task.next_retry_at


def _refusal(task_id: UUID, action: Action) -> Operation[Exception]:
    """Why the action was not done to the task."""
    return refusal(action, (yield from require_task(task_id)))


def _ids(ids: Sequence[UUID]) -> str:
    # Sorted, so that two actions over the same tasks lock them in the same order.
    return dumps(sorted(str(task_id) for task_id in ids))
