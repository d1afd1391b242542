"""Retrying workflows by hand: from where they failed, from one of their steps, or from scratch.

What was undone can only begin from scratch, and not before its undo tasks have ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.core.codec import dumps
from tasklib.core.lifecycle import phase_of
from tasklib.core.task import Task
from tasklib.core.texts.error_text import bounded as shortened
from tasklib.errors import ConfigurationError, InvalidTransition
from tasklib.storage.statement import Operation, Row, Statement


def resume_tasks(ids: Sequence[str], states: str) -> Operation[Sequence[Row]]:
    """Let tasks run again from zero attempts; workflows at their failed steps, none that was undone.

    What was skipped in a flow waits again for what is before it, and so does what was skipped because of these.
    """
    skipped = yield from lock_skipped(ids)
    wanted = dumps(sorted(set(ids) - skipped))
    changed = list((yield Statement("retry_tasks", {"ids": wanted, "states": states, "from_scratch": False})))
    yield from reopen_workflows(changed)
    if skipped:
        waiting = yield Statement("wait_again", {"ids": dumps(sorted(skipped))})
        changed += [row for row in waiting if str(row["id"]) in set(ids)]
    return changed


def lock_skipped(ids: Sequence[str]) -> Operation[set[str]]:
    """Find what was skipped of these tasks and after them, and lock what each waits for.

    Comes before any of the tasks is locked: groups are first in the order of locks.
    """
    skipped = {str(row["id"]) for row in (yield Statement("find_skipped", {"ids": dumps(sorted(ids))}))}
    if skipped:
        yield Statement("lock_groups_of", {"ids": dumps(sorted(skipped))})
    return skipped


def resume_from(task: Task, key: str) -> Operation[Sequence[Row]]:
    """Let a workflow run again from one of its steps: that one and those after it are forgotten."""
    ids = dumps([str(task.id)])
    steps = yield Statement("load_steps", {"id": str(task.id)})
    number = next((row["number"] for row in steps if row["key"] == key), None)
    if number is None:
        known = ", ".join(row["key"] for row in steps) or "none"
        raise ConfigurationError(f"task {task.id} has no step {key!r}; it has recorded: {shortened(known, 500)}")
    yield Statement("lock_groups_of", {"ids": ids})
    changed = yield from resume_tasks([str(task.id)], dumps([str(task.state)]))
    dropped = yield Statement("drop_steps", {"id": str(task.id), "number": number})
    if task.completed_at is None and any(row["has_undo"] for row in dropped):
        remedy = "cancel it first, so that its undos run"
        raise InvalidTransition(task.id, phase_of(task), f"retry from step {key!r}", "undone", remedy)
    keys = dumps([row["key"] for row in dropped])
    yield Statement("return_messages", {"ids": ids, "keys": keys})
    yield Statement("leave_groups", {"ids": ids, "keys": keys})
    return changed


def begin_anew(ids: Sequence[str], states: str) -> Operation[Sequence[Row]]:
    """Let tasks run again from scratch: their records are forgotten, and messages are delivered to them again."""
    wanted = dumps(sorted(ids))
    yield Statement("lock_groups_of", {"ids": wanted})  # Groups come before tasks in the order of locks.
    changed = yield Statement("retry_tasks", {"ids": wanted, "states": states, "from_scratch": True})
    begun = dumps(sorted(str(row["id"]) for row in changed))
    yield Statement("forget_steps", {"ids": begun})
    yield Statement("return_messages", {"ids": begun, "keys": None})
    yield Statement("leave_groups", {"ids": begun, "keys": None})
    return changed


def reopen_workflows(restarted: Sequence[Row]) -> Operation[None]:
    """Let workflows among restarted tasks run their failed steps again; what is done stays done."""
    if begun := [str(row["id"]) for row in restarted if row["marks"] is not None]:
        yield Statement("reopen_steps", {"batch": dumps([{"id": task_id, "key": None} for task_id in begun])})


def require_retryable(task: Task, *, from_scratch: bool) -> Operation[None]:
    """InvalidTransition unless the task's undos allow it."""
    (found,) = yield Statement("look_at_undos", {"id": str(task.id)})
    if found["begun"] and found["living"]:
        remedy = "wait until its undo tasks have ended"
        raise InvalidTransition(task.id, "being undone", "retry", "undone", remedy)
    if found["begun"] and not from_scratch:
        remedy = "retry it from scratch (from_scratch=True)"
        raise InvalidTransition(task.id, "undone", "resume", "not undone", remedy)
    if found["bound"] and from_scratch and not found["begun"] and task.completed_at is None:
        remedy = "cancel it first, so that its undos run"
        raise InvalidTransition(task.id, phase_of(task), "retry from scratch", "undone", remedy)
