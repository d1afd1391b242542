"""Runs the tests on real local clusters of Dask and Ray, in an environment that has them.

Usage: python -m tools.versions.cluster [pytest arguments]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.problems import ROOT
from tools.versions import environments


def main(arguments: list[str]) -> int:
    """The exit status of pytest."""
    python = environments.cluster(Path(sys.executable))
    # One after the other: there is one cluster of each engine, with two slots.
    command = [str(python), "-m", "pytest", "-n", "0", "tests/cluster", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
