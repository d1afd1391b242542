"""Workflows that run again because a person wants it: from where they failed, from one of their steps, or from scratch.

What was undone can only begin from scratch, and not before its undo tasks have ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.core.codec import dumps
from tasklib.core.lifecycle import phase_of
from tasklib.core.task import Task
from tasklib.errors import InvalidTransition
from tasklib.storage.statement import Operation, Row, Statement


def resume_tasks(ids: Sequence[str], states: str) -> Operation[Sequence[Row]]:
    """Let tasks run again from zero attempts; workflows at their failed steps, none that was undone."""
    changed = yield Statement("retry_tasks", {"ids": dumps(sorted(ids)), "states": states, "from_scratch": False})
    yield from reopen_workflows(changed)
    return changed


def begin_anew(ids: Sequence[str], states: str) -> Operation[Sequence[Row]]:
    """Let tasks run again as if they never had: what they have recorded is forgotten, messages come to them again."""
    wanted = dumps(sorted(ids))
    yield Statement("lock_groups_of", {"ids": wanted})  # Groups come before tasks in the order of locks.
    changed = yield Statement("retry_tasks", {"ids": wanted, "states": states, "from_scratch": True})
    begun = dumps(sorted(str(row["id"]) for row in changed))
    yield Statement("forget_steps", {"ids": begun})
    yield Statement("return_messages", {"ids": begun})
    yield Statement("leave_groups", {"ids": begun})
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
