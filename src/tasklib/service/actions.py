"""What a person can do to tasks, one or many: in which states it is possible, and the operation that does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from tasklib.core.task import Task, TaskFilter
from tasklib.errors import ConfigurationError
from tasklib.queue.arguments import check_priority
from tasklib.storage.operations import actions
from tasklib.storage.operations.actions import Told
from tasklib.storage.statement import Operation


class Action(StrEnum):
    """What a person can do to tasks."""

    RETRY = "retry"
    CANCEL = "cancel"
    PRIORITIZE = "prioritize"
    DELETE = "delete"


def possible(action: Action, which: TaskFilter) -> TaskFilter:
    """The filter narrowed to states that allow the action; a state that never does is an error that says so."""
    wrong = [state for state in which.states if state not in POSSIBLE[action]]
    if wrong:
        raise ConfigurationError(
            f"{action} is not possible for {', '.join(wrong)} tasks, only for {', '.join(POSSIBLE[action])}"
        )
    return replace(which, states=which.states or DEFAULTS[action])


def act_on_one(action: Action, task_id: UUID, priority: int | None, now: datetime | None) -> Operation[Task]:
    """Do it to one task: the task as it is then, or a deleted one as it was."""
    match action:
        case Action.RETRY:
            return (yield from actions.retry_task(task_id, now))
        case Action.CANCEL:
            return (yield from actions.cancel_task(task_id, now))
        case Action.PRIORITIZE:
            return (yield from actions.set_priority(task_id, _given(priority), now))
        case Action.DELETE:
            return (yield from actions.delete_task(task_id))


def act_on_all(
    action: Action, which: TaskFilter, priority: int | None, now: datetime | None, told: Told | None
) -> Operation[int]:
    """Do it to every task of the filter that allows it; how many it was."""
    if action is Action.PRIORITIZE:
        return (yield from actions.prioritize_matching(which, _given(priority), now, told))
    return (yield from _IN_BULK[action](which, now, told))


def count_all(action: Action, which: TaskFilter, now: datetime | None) -> Operation[int]:
    """How many tasks `act_on_all` would change now."""
    return (yield from _COUNTED[action](which, now))


def _given(priority: int | None) -> int:
    if priority is None:
        raise ConfigurationError("prioritize needs the priority that the tasks shall have, got None")
    return check_priority(priority)


_LIVE: Final = ("pending", "delayed", "running", "retrying")

POSSIBLE: Final[Mapping[Action, tuple[str, ...]]] = {
    Action.RETRY: ("failed", "retrying", "cancelled", "buried", "completed"),
    Action.CANCEL: _LIVE,
    Action.PRIORITIZE: _LIVE,
    Action.DELETE: ("completed", "failed", "cancelled", "buried"),
}
"""The states in which an action can happen."""

DEFAULTS: Final[Mapping[Action, tuple[str, ...]]] = {
    Action.RETRY: ("failed", "buried"),
    Action.CANCEL: ("pending", "running", "retrying"),
    Action.PRIORITIZE: ("pending", "running", "retrying"),
    Action.DELETE: POSSIBLE[Action.DELETE],
}
"""The states meant by a bulk action that names none: what was cancelled or completed is not run again by accident."""

_IN_BULK: Final[Mapping[Action, Callable[[TaskFilter, datetime | None, Told | None], Operation[int]]]] = {
    Action.RETRY: actions.retry_matching,
    Action.CANCEL: actions.cancel_matching,
    Action.DELETE: actions.delete_matching,
}
_COUNTED: Final[Mapping[Action, Callable[[TaskFilter, datetime | None], Operation[int]]]] = {
    Action.RETRY: actions.count_retries,
    Action.CANCEL: actions.count_live,
    Action.PRIORITIZE: actions.count_live,
    Action.DELETE: actions.count_deletes,
}
