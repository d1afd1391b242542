"""Writes constraints.txt: every package that a developer's `.venv` needs, at the newest version that fits.

Asks pip to resolve the group `dev` without installing. Only names and versions are written: where packages come from
is each machine's own setting.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tools import requirements

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# Written by `make pin`: every package of the group `dev` at one version. Applied with pip's --constraint.\n"


def main() -> None:
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "-qq"]
    # `editables` is asked for by the build backend, not by us, so pip does not report it.
    command += ["--report", "-", requirements.TESTED, *requirements.group("dev"), "editables"]
    answer = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    pins = pinned(json.loads(answer.stdout))
    (ROOT / "constraints.txt").write_text(HEADER + "".join(f"{pin}\n" for pin in pins))
    print(f"constraints.txt: {len(pins)} packages")


def pinned(report: dict[str, list[dict[str, dict[str, str]]]]) -> list[str]:
    """`name==version` for each package of a pip installation report, sorted, without tasklib itself."""
    packages = (item["metadata"] for item in report["install"])
    pins = {re.sub(r"[-_.]+", "-", package["name"]).lower(): package["version"] for package in packages}
    pins.pop("tasklib-queue", None)
    return [f"{name}=={version}" for name, version in sorted(pins.items())]


if __name__ == "__main__":
    main()
