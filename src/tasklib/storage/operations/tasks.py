"""Submitting tasks, and reading one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from tasklib.core.codec import dumps
from tasklib.core.task import POSITION_DIGITS, NewTask, Task, TaskBatch, TaskState
from tasklib.core.task_id import TaskId, TaskIds
from tasklib.core.texts.short_id import ShortId
from tasklib.errors import PermissionDenied, TaskNotFound, UniqueConflict
from tasklib.storage.operations.access.audit import AuditEntry, entries_text, entry_values
from tasklib.storage.rows import moment, moment_text, task_from_row, uuid
from tasklib.storage.statement import BEGIN, DONE_BEFORE, DuplicateKey, Operation, Row, Statement, recall

RESUBMITS = 5
"""How often a submission is repeated because the task that held its unique key has just ended."""


def submit_tasks(
    new: Sequence[NewTask], *, created_at: dict[UUID, datetime] | None = None, entries: Sequence[AuditEntry] = ()
) -> Operation[list[TaskId]]:
    """Store the tasks, all or none, and answer an id for each in the same order.

    `created_at` is filled with when each new row was made; `entries` go to the audit log in the same statement.

    A task whose unique key is held by a live task follows its own `on_conflict`.  One whose id is stored already was
    stored by an earlier try of this call, whose reply was lost, and counts as created; or before this call, where the
    caller has chosen the id.
    """
    is_repeated = False
    if entries or any(n.is_id_given for n in new):
        memory = yield from recall()
        is_repeated = "sent" in memory
        memory["sent"] = True
    if entries and is_repeated and (yield from get_task(new[0].id)) is not None:
        entries = ()  # stored with the tasks by the try whose reply was lost
    plain = new[0].unique_key is None and not new[0].is_id_given
    if len(new) == 1 and plain and not entries and created_at is None:
        yield Statement("insert_task", _values(new[0]))
        return [TaskId(new[0].id)]
    answers: dict[UUID, TaskId] = {}
    # A single statement is a transaction by itself, unless it may have to be followed by others.
    if (len(new) > 1 and not entries) or (entries and any(n.unique_key is not None for n in new)):
        yield BEGIN
    waiting = list(new)
    for _ in range(RESUBMITS):
        rows = yield _insertion(waiting, entries)
        entries = ()  # once, however often the tasks are tried
        if created_at is not None:
            created_at.update((uuid(row["id"]), at) for row in rows if (at := moment(row["created_at"])) is not None)
        if len(rows) == len(waiting):
            break
        inserted = {uuid(row["id"]) for row in rows}
        refused = [n for n in waiting if n.id not in inserted]
        waiting = yield from _settle_conflicts(refused, answers, is_repeated=is_repeated)
        if not waiting:
            break
    else:
        raise UniqueConflict(waiting[0].name, waiting[0].unique_key or "", None, "its holder changes too fast")
    return [answers.get(n.id) or TaskId(n.id) for n in new]


def _insertion(new: Sequence[NewTask], entries: Sequence[AuditEntry]) -> Statement:
    """The statement that stores the tasks with their entries, and answers which of them were new."""
    if len(new) == len(entries) == 1 and new[0].unique_key is None:
        return Statement("insert_task_audited", {**_values(new[0]), **entry_values(entries[0])})
    params = {"batch": dumps([columns_of(n) for n in new])}
    if not entries:
        return Statement("insert_tasks", params)
    return Statement("insert_tasks_audited", {**params, "entries": entries_text(entries)})


def submit_once(new: NewTask) -> Operation[TaskId]:
    """Store one task whose row each try of a call makes again, under the id of the first try."""
    memory = yield from recall()
    kept = replace(new, id=memory.setdefault("id", new.id))
    if "sent" in memory and (yield from get_task(kept.id)) is not None:
        memory[DONE_BEFORE] = True
        return TaskId(kept.id)
    task_id = (yield from submit_tasks([kept]))[0]
    memory["sent"] = True
    return task_id


def submit_batch(batch: TaskBatch) -> Operation[TaskIds]:
    """Store the tasks of a batch, all or none; done again after a lost reply it stores nothing twice."""
    params = {
        "like": dumps(columns_of(batch.like)),
        "ids": str(batch.like.id)[:-POSITION_DIGITS],
        "inputs": batch.inputs,
    }
    try:
        yield Statement("insert_batch", params)
    except DuplicateKey:
        yield Statement("insert_batch_again", params)
    return TaskIds.of_batch(batch)


def get_task(task_id: UUID) -> Operation[Task | None]:
    """The task with this id, or None."""
    rows = yield Statement("get_task", {"id": str(task_id)})
    return task_from_row(rows[0]) if rows else None


def require_task(task_id: UUID) -> Operation[Task]:
    """The task with this id; TaskNotFound if there is none."""
    task = yield from get_task(task_id)
    if task is None:
        raise TaskNotFound(task_id)
    return task


def find_ids(short: ShortId) -> Operation[list[UUID]]:
    """The ids that a short form fits, a few at most."""
    rows = yield Statement("find_ids", {"low": str(short.low), "high": str(short.high), "end": short.end})
    return [UUID(str(row["id"])) for row in rows]


def waiting_names() -> Operation[list[str]]:
    """The names of tasks that wait, due or not, in the time that their number takes."""
    return [row["name"] for row in (yield Statement("waiting_names"))]


def watch_task(task_id: UUID) -> Operation[Task | None]:
    """Ask to be notified of the task's end, then read it: an end before this is seen, a later one is notified.

    A role that may only read is not notified: it looks from time to time.
    """
    with suppress(PermissionDenied):
        yield Statement("watch_task", {"id": str(task_id)})
    return (yield from get_task(task_id))


def _values(new: NewTask) -> dict[str, Any]:
    """The task as parameters of a statement of its own, which the databases take faster than JSON."""
    return {
        "id": str(new.id),
        "name": new.name,
        "kwargs": dumps(new.kwargs),
        "run_at": None if new.run_at is None else moment_text(new.run_at),
        "delay": new.delay_seconds,
        "max_retries": new.max_retries,
        "timeout_seconds": new.timeout_seconds,
        "priority": new.priority,
        "tags": dumps(new.tags) if new.tags else "{}",
        "concurrency_key": new.concurrency_key,
        "headers": dumps(new.headers) if new.headers else None,
        "expires_at": None if new.expires_at is None else moment_text(new.expires_at),
        "expires_in": new.expires_in,
    }


def columns_of(new: NewTask) -> dict[str, Any]:
    """The task as one object of the JSON batch; what is left out gets its default in the statement."""
    optional = {
        "run_at": None if new.run_at is None else moment_text(new.run_at),
        "delay": new.delay_seconds if new.run_at is None else None,
        "timeout_seconds": new.timeout_seconds,
        "priority": new.priority,
        "tags": new.tags,
        "unique_key": new.unique_key,
        "concurrency_key": new.concurrency_key,
        "headers": new.headers,
        "expires_at": None if new.expires_at is None else moment_text(new.expires_at),
        "expires_in": new.expires_in if new.expires_at is None else None,
    }
    required = {"id": str(new.id), "name": new.name, "kwargs": new.kwargs, "max_retries": new.max_retries}
    return required | {key: value for key, value in optional.items() if value}


def _settle_conflicts(
    refused: Sequence[NewTask], answers: dict[UUID, TaskId], *, is_repeated: bool
) -> Operation[list[NewTask]]:
    """Resolve each task that was not inserted by its own `on_conflict`; returns those whose conflict is over."""
    keys = [{"id": str(n.id), "name": n.name, "unique_key": n.unique_key} for n in refused]
    rows = yield Statement("find_live_keys", {"keys": dumps(keys)})
    holders: dict[UUID, list[Row]] = {}
    for row in rows:
        holders.setdefault(uuid(row["asked"]), []).append(row)
    again: list[NewTask] = []
    for task in refused:
        found = holders.get(task.id)
        if found and any(uuid(row["id"]) == task.id for row in found):
            answers[task.id] = TaskId(task.id, created=is_repeated or not task.is_id_given)
            continue
        answer = (yield from _settle(task, found)) if found else None
        if answer is None:
            again.append(task)
        else:
            answers[task.id] = answer
    return again


def _settle(task: NewTask, found: Sequence[Row]) -> Operation[TaskId | None]:
    holder: Mapping[str, Any] = found[0]
    existing, key = uuid(holder["id"]), task.unique_key or ""
    if holder["expired"] and task.on_conflict != "replace":
        try:
            yield Statement("expire_holder", {"id": str(existing)})
        except PermissionDenied as error:
            raise PermissionDenied(
                f"task {existing} has the unique key {key!r} and will not run any more, because its expires_at has "
                f"passed; ending it, which frees the key, is for a worker that defines {task.name!r} or a role with "
                f"its rights: this one may not ({error})"
            ) from error
        return None
    match task.on_conflict:
        case "return":
            return TaskId(existing, created=False)
        case "raise":
            raise UniqueConflict(task.name, key, existing)
        case "replace":
            try:
                rows = yield Statement("replace_task", {"batch": dumps([columns_of(task)])})
            except PermissionDenied as error:
                raise PermissionDenied(
                    f"task {existing} has the unique key {key!r} and waits; on_conflict='replace' rewrites it, which "
                    f"this role may not ({error}); use on_conflict='return', or a role with the rights of a worker"
                ) from error
            if rows:
                # The refused insert woke workers too early.
                yield Statement("wake_workers")
                return TaskId(uuid(rows[0]["id"]), created=False)
            if holder["marks"] is not None:
                reason = "it is a workflow that has begun, or one waits for its end, and cannot be replaced"
                raise UniqueConflict(task.name, key, existing, reason)
            if holder["state"] == TaskState.RUNNING:
                raise UniqueConflict(task.name, key, existing, "it is running and cannot be replaced")
            return None
