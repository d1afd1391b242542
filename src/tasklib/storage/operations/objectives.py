"""Objectives of task names, stored so that all front ends show the same."""

from __future__ import annotations

from collections import Counter
from typing import Final

from tasklib.core.insights.objectives import Objective, ObjectiveStatus, objective_status
from tasklib.storage.operations import statistics
from tasklib.storage.operations.limits.pauses import EVERYTHING
from tasklib.storage.rows import required_moment
from tasklib.storage.statement import BEGIN, Operation, Statement

MOST: Final = 1000
DAY_SECONDS: Final = 86_400
MOST_STANDINGS: Final = 100
_WHOLE: Final = 1 << 40


def set_objective(objective: Objective) -> Operation[bool]:
    """Store an objective, which replaces the one of its name and kind; whether that changed something."""
    given = {
        "name": objective.name or EVERYTHING,
        "kind": objective.kind,
        "within": objective.within_seconds,
        "target": objective.target,
        "by": objective.set_by,
    }
    yield BEGIN
    return bool((yield Statement("set_objective", given)))


def remove_objective(name: str | None, kind: str) -> Operation[bool]:
    """Remove an objective; False if there is none."""
    yield BEGIN
    return bool((yield Statement("remove_objective", {"name": name or EVERYTHING, "kind": kind})))


def list_objectives() -> Operation[list[Objective]]:
    """All objectives, by name."""
    return [
        Objective(
            name=row["name"] or None,
            kind="run" if row["kind"] == "run" else "wait",
            within_seconds=row["within_seconds"],
            target=row["target"],
            set_at=required_moment(row["set_at"]),
            set_by=row["set_by"],
        )
        for row in (yield Statement("list_objectives", {"limit": MOST}))
    ]


def read_objective_statuses(seconds: int = DAY_SECONDS) -> Operation[tuple[ObjectiveStatus, ...]]:
    """How each objective stands over the last seconds."""
    found = yield from list_objectives()
    clock = (yield from statistics.read_time()) if found else 0
    shown: list[ObjectiveStatus] = []
    for objective in found[:MOST_STANDINGS]:
        read = yield from statistics.read_latency(
            since=(clock - seconds) // 60 * 60,
            until=clock + 60,
            step=_WHOLE,
            kind="waits" if objective.kind == "wait" else "runs",
            name=objective.name,
        )
        shown.append(objective_status(objective, sum(read.values(), Counter[int]())))
    return tuple(shown)
