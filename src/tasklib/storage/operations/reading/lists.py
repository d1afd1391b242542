"""Lists and counts of tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tasklib.core.codec import dumps
from tasklib.core.queue_info import QueueStats, TaskFilter
from tasklib.core.task import Task, TaskState
from tasklib.core.texts.search_text import json_paths, path_of
from tasklib.storage.rows import task_start_from_row
from tasklib.storage.statement import Operation, Statement

FEW_ROWS = 20_000
"""A table of this size is read row by row where a larger one would need its indexes."""
WHOLE_WIDTH = 2**31 - 1
"""So many characters are always all of them."""
LISTED_WIDTH = 64 * 1024
"""Characters of a payload, a result or an error that are read for a page of a list."""
NEVER = 2**63 - 1
"""A position that no task has."""
_TROUBLES = frozenset({"failed", "cancelled", "buried"})


def list_tasks(
    which: TaskFilter,
    *,
    limit: int,
    offset: int = 0,
    before: int | None = None,
    floor: int | None = None,
    width: int = WHOLE_WIDTH,
) -> Operation[list[Task]]:
    """Matching tasks, newest first; `before` is the `seq` of the last task of the page before.

    None from below `floor`, which applies only where `find_floor` finds one.  Of long columns no more than `width`
    characters are read.
    """
    params = filter_params(which) | {"limit": limit, "offset": offset, "before": before, "width": width}
    between = {"before": NEVER if before is None else before, "floor": floor or 0}
    states = _states(which)
    if states and states <= _TROUBLES:
        how = "list_trouble" if is_covered(which) else "search_trouble"
        rows = yield Statement(how, params | between | {"troubles": dumps(sorted(states))})
    elif states == {"retrying"}:
        rows = yield Statement("list_retrying", params | between)
    elif states == {"running"} and not (yield from is_small()):
        # In a small table also those that no worker holds are found.
        rows = yield Statement("list_held_tasks", params)
    else:
        rows = yield Statement("list_tasks", params)
    return [task_start_from_row(row, width) for row in rows]


def find_floor(which: TaskFilter, before: int | None, reach: int) -> Operation[int | None]:
    """How far back so many failed, cancelled or buried tasks reach; None if there are fewer, or for other states."""
    states = {"failed"} if _states(which) == {"retrying"} else _states(which)
    if not states or not states <= _TROUBLES:
        return None
    asked = {"troubles": dumps(sorted(states)), "before": NEVER if before is None else before, "reach": reach}
    floor: int | None = (yield Statement("find_trouble", asked))[0]["seq"]
    return floor


def is_indexed(which: TaskFilter) -> bool:
    """Whether `list_tasks` finds these without reading past others."""
    states = _states(which)
    return which.ids is not None or bool(states and states <= _TROUBLES) or states in ({"retrying"}, {"running"})


def is_covered(which: TaskFilter) -> bool:
    """Whether the index of failures alone decides which of them match."""
    return replace(which, states=(), name=None, fingerprint=None) == TaskFilter()


def is_small() -> Operation[bool]:
    """Whether the table is small enough to be read row by row."""
    return bool((yield Statement("measure_size"))[0]["count"] <= FEW_ROWS)


def count_tasks(which: TaskFilter) -> Operation[int]:
    """How many tasks match."""
    return int((yield Statement("count_tasks", filter_params(which)))[0]["count"])


def count_failures(which: TaskFilter) -> Operation[int]:
    """How many tasks failed with the filter's fingerprint, in its states and of its name."""
    states = _states(which)
    troubles = None if states >= {"failed", "buried"} else dumps(sorted(states))
    params = {"troubles": troubles, "name": which.name, "fingerprint": which.fingerprint}
    return int((yield Statement("count_failures", params))[0]["count"])


def count_by_state() -> Operation[QueueStats]:
    """How many tasks are in each state, in all and by name; each name has every state, also with none in it."""
    rows = yield Statement("count_by_state")
    by_name: dict[str, dict[str, int]] = {}
    totals = dict.fromkeys([*map(str, TaskState), "delayed", "waiting", "retrying"], 0)
    none = totals.copy()
    for row in rows:
        of_name = by_name.setdefault(row["name"], none.copy())
        parts = (("delayed", row["delayed"]), ("waiting", row["suspended"]), ("retrying", row["retrying"]))
        for key, count in ((row["state"], row["count"]), *parts):
            totals[key] += count
            of_name[key] += count
    return QueueStats(**totals, by_name=by_name)


def filter_params(which: TaskFilter) -> dict[str, Any]:
    """The parameters of the `matches` fragment."""
    states = [str(s) for s in which.states if s not in ("delayed", "waiting", "retrying")]
    return {
        "states": dumps(states) if states else None,
        "delayed": True if "delayed" in which.states else None,
        "suspended": True if "waiting" in which.states else None,
        "retrying": True if "retrying" in which.states else None,
        "name": which.name,
        "tags": dumps(dict(which.tags)) if which.tags else None,
        "ids": None if which.ids is None else dumps([str(i) for i in which.ids]),
        "unique_key": which.unique_key,
        "concurrency_key": which.concurrency_key,
        "fingerprint": which.fingerprint,
        "search": which.search,
        "arguments": dumps(list(map(_argument, (which.arguments or {}).items()))) if which.arguments else None,
        "worker": which.worker,
        "release": which.release,
        "ran_least": which.duration.least,
        "ran_below": which.duration.below,
        "waited_least": which.wait.least,
        "waited_below": which.wait.below,
        "created_after": which.created_after,
        "created_before": which.created_before,
        "completed_after": which.completed_after,
        "completed_before": which.completed_before,
    }


def _argument(wanted: tuple[str, str]) -> dict[str, Any]:
    """A value at a path, in the spelling of either database."""
    path, value = wanted
    parts = path_of(path)
    return {"path": parts, "paths": json_paths(parts), "value": value}


def _states(which: TaskFilter) -> set[str]:
    """The states in which a match can be."""
    return {"failed", "buried"} if which.fingerprint is not None and not which.states else set(map(str, which.states))
