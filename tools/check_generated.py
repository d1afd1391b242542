"""Fails when a committed file is not what its generator writes today.

Usage: python -m tools.check_generated [--write]
"""

from __future__ import annotations

import subprocess
import sys

from tools.problems import ROOT

# Each is a module with two ways to run: plain it writes its files, with --check it only compares.
GENERATORS = (
    *("tools.schema_snapshot", "tools.cli_reference", "tools.json_reference", "tools.http_reference"),
    "tools.dashboard_types",
)


def main(arguments: list[str]) -> int:
    """The number of generators that failed."""
    check = [] if "--write" in arguments else ["--check"]
    commands = [[sys.executable, "-m", generator, *check] for generator in GENERATORS]
    failed = sum(subprocess.run(command, cwd=ROOT).returncode != 0 for command in commands)
    if failed and check:
        print("Remedy: `make snapshot` writes them anew; commit the result with the change that caused it.")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
