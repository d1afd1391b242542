"""Finds Prometheus' own checker of rules, or takes it out of Debian's package, which needs no rights.

Usage: python -m tools.promtool
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tools.versions.environments import FOLDER

TAKEN = FOLDER / "prometheus" / "usr" / "bin" / "promtool"


def find() -> Path | None:
    """The program on the PATH, or the one taken before."""
    found = shutil.which("promtool")
    if found:
        return Path(found)
    return TAKEN if TAKEN.exists() else None


def take() -> Path | None:
    """The program; None where neither it nor Debian's package is to be had."""
    if find() is None and shutil.which("apt-get") and shutil.which("dpkg-deb"):
        folder = FOLDER / "prometheus"
        folder.mkdir(parents=True, exist_ok=True)
        if subprocess.run(["apt-get", "download", "-qq", "prometheus"], cwd=folder, check=False).returncode == 0:
            for package in folder.glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
                package.unlink()
    return find()


if __name__ == "__main__":
    program = take()
    print(program or "not found: install Debian's package prometheus, or put promtool on the PATH")
    sys.exit(program is None)
