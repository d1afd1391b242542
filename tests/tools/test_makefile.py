"""`make check` fails when one of its checks does, shows why, and runs the others all the same."""

from __future__ import annotations

import subprocess
import sys

from tools.problems import ROOT


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", f"VENV={sys.executable}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_a_check_that_fails_fails_the_whole_and_stops_no_other() -> None:
    ran = make("check", "CHECKS=sql docs imports", "docs=python -m tools.no_such_check")

    assert ran.returncode != 0
    assert "No module named tools.no_such_check" in ran.stderr
    assert {line for line in ran.stdout.splitlines() if line.startswith("ok ")} == {"ok sql", "ok imports"}


def test_one_check_runs_alone() -> None:
    ran = make("check-sql")

    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "ok sql")
