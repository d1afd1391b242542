"""Writes the dashboard's types of the HTTP interface from the service's own description of itself.

Usage: python -m tools.dashboard_types [--check]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tasklib import TaskQueue
from tools import dashboard
from tools.problems import ROOT, Problem, report

TYPES = dashboard.SOURCES / "src" / "api" / "schema.ts"


def main(arguments: list[str]) -> None:
    """Write the file, or with --check only compare it."""
    wanted = generated()
    if "--check" not in arguments:
        TYPES.write_text(wanted)
        print(TYPES.relative_to(ROOT))
    elif TYPES.read_text() != wanted:
        report([Problem(TYPES, 1, "is not what the HTTP interface is today")], "make snapshot")


def generated() -> str:
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
