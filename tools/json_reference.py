"""Writes the second table of `docs/reference/json.md` from the values themselves, so that no field is missing there.

Usage: python -m tools.json_reference [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from tasklib.core.insights.explain import Reason
from tasklib.core.insights.objectives import Objective, ObjectiveStatus
from tasklib.core.limits import KeyLimit, Limit, Pause
from tasklib.core.queue_info import ErrorGroup, WorkerInfo
from tasklib.core.schedule import Plan, Schedule
from tasklib.core.task import Attempt, LogLine, Task
from tasklib.doctor import Finding
from tasklib.service.statistics import TypeInfo
from tasklib.storage.operations.access.tokens import Token
from tools.problems import ROOT, Problem, report

PAGE = ROOT / "docs/reference/json.md"
HEADING = "## Objects\n"
NOTE = "<!-- Written by `make snapshot` from the values themselves; edit those. -->"
OBJECTS: dict[str, type[Any]] = {
    "task": Task,
    "attempt, in `history`": Attempt,
    "line, in `log`": LogLine,
    "reason": Reason,
    "worker": WorkerInfo,
    "type": TypeInfo,
    "group of errors": ErrorGroup,
    "pause": Pause,
    "limit": Limit,
    "limit of a key": KeyLimit,
    "status of an objective": ObjectiveStatus,
    "objective": Objective,
    "finding": Finding,
    "token": Token,
}


def main(arguments: list[str]) -> None:
    text = PAGE.read_text()
    wanted = text[: text.index(HEADING)] + HEADING + "\n".join(table()) + "\n"
    if "--check" in arguments:
        problems = [Problem(PAGE, 1, "is not what the values are")] if text != wanted else []
        report(problems, "run `make snapshot` and commit the result with the change of the value.")
    else:
        PAGE.write_text(wanted)


def table() -> Iterator[str]:
    """Each object with its keys, in the order in which they are printed."""
    yield from ("", NOTE, "", "| object | keys |", "|---|---|")
    for name, kind in OBJECTS.items():
        yield row(name, keys_of(kind))
    # A schedule is printed together with its plan, and with what comes next.
    plan = [key for key in keys_of(Plan) if key != "secrets"]
    both = [*plan, *(key for key in keys_of(Schedule) if key != "plan"), "next_runs"]
    yield row("schedule", both)


def keys_of(kind: type[Any]) -> list[str]:
    return [field.name for field in fields(kind)]


def row(name: str, keys: list[str]) -> str:
    return f"| {name} | {' '.join(f'`{key}`' for key in keys)} |"


if __name__ == "__main__":
    main(sys.argv[1:])
