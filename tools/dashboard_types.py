"""Writes what the TypeScript client and the dashboard know of the service: the types of the HTTP interface, which the
dashboard imports from the client, and the dashboard's table of actions.

Usage: python -m tools.dashboard_types [--check]
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tasklib import TaskQueue
from tasklib.core.lifecycle import ACTIONS, Action, Phase
from tools import dashboard
from tools.problems import ROOT, Problem, report

API = dashboard.SOURCES / "src" / "api"
CLIENT = ROOT / "clients" / "typescript" / "src"


def main(arguments: list[str]) -> None:
    """Write the files, or with --check only compare them."""
    wanted = {CLIENT / "schema.ts": types(), API / "actions.ts": actions()}
    if "--check" in arguments:
        stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
        report([Problem(path, 1, "is not what the service is today") for path in stale], "make snapshot")
        return
    for path, text in wanted.items():
        path.write_text(text)
        print(path.relative_to(ROOT))


def actions() -> str:
    """The statuses in which an action is possible, and those that one in bulk means where none is named."""
    possible = {action: (*rule.possible, *_delayed(rule.possible)) for action, rule in ACTIONS.items()}
    by_default = {action: rule.by_default for action, rule in ACTIONS.items()}
    return f"""\
/** The table of actions of core/lifecycle.py, written by `make snapshot`. */

import type {{ Action, BulkFilter }} from "./client";

type Statuses = Record<Action, NonNullable<BulkFilter["status"]>[number][]>;

export const POSSIBLE: Statuses = {_object(possible)};

/** Which tasks are meant where no status is named. */
export const BY_DEFAULT: Statuses = {_object(by_default)};
"""


def _delayed(phases: Sequence[Phase]) -> tuple[str, ...]:
    return ("delayed", "waiting") if Phase.PENDING in phases else ()


def _object(phases: Mapping[Action, Sequence[str]]) -> str:
    def row(action: Action) -> str:
        return json.dumps(["processing" if phase == Phase.RUNNING else phase for phase in phases[action]])

    return "\n".join(["{", *(f"  {action}: {row(action)}," for action in phases), "}"])


def types() -> str:
    """What openapi-typescript makes of the description."""
    dashboard.install()
    queue = TaskQueue("sqlite:///:memory:")
    with tempfile.TemporaryDirectory() as folder:
        description, types = Path(folder) / "openapi.json", Path(folder) / "schema.ts"
        description.write_text(json.dumps(queue.asgi(auth=None).openapi()))
        # A field with a default may be left out of a request; the order of routes in the app does not matter.
        options = ["--alphabetize", "--default-non-nullable=false", "--output", str(types)]
        dashboard.npm("exec", "--", "openapi-typescript", str(description), *options)
        return types.read_text()


if __name__ == "__main__":
    main(sys.argv[1:])
