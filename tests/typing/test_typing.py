"""All three type checkers accept code that is right and find every mistake, in strict mode."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = ("accepted.py", "untyped.py", "rejected.py")
MARK = "# expect-error"
NOT_BY_TY = "# expect-error (not by ty)"
"""ty takes any name for a key of `**options: Unpack[...]`, and only checks the values of those that it knows."""

Findings = Mapping[str, Mapping[int, str]]
"""File → line → what was found there."""


@cache
def mypy() -> Findings:
    command = [sys.executable, "-m", "mypy", "--output=json", *(str(HERE / name) for name in FILES)]
    found: dict[str, dict[int, str]] = {name: {} for name in FILES}
    for line in run(command):
        finding = json.loads(line)
        if finding["severity"] == "error":
            found.setdefault(Path(finding["file"]).name, {})[finding["line"]] = finding["message"]
    return found


@cache
def pyright() -> Findings:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(HERE)]
    report = json.loads("\n".join(run(command)))
    assert report["summary"]["filesAnalyzed"] == len(FILES)
    found: dict[str, dict[int, str]] = {name: {} for name in FILES}
    for finding in report["generalDiagnostics"]:
        start = finding["range"]["start"]["line"] + 1
        found.setdefault(Path(finding["file"]).name, {})[start] = finding["message"]
    return found


@cache
def ty() -> Findings:
    command = [sys.executable, "-m", "ty", "check", "--output-format=concise", "--python", sys.prefix]
    found: dict[str, dict[int, str]] = {name: {} for name in FILES}
    for line in run([*command, "--project", str(ROOT), *(str(HERE / name) for name in FILES)]):
        if match := re.fullmatch(r"(.+?):(\d+):\d+: (error.+)", line):
            found.setdefault(Path(match[1]).name, {})[int(match[2])] = match[3]
    return found


def run(command: list[str]) -> list[str]:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.splitlines()


CHECKERS = pytest.mark.parametrize("checker", [mypy, pyright, ty], ids=["mypy", "pyright", "ty"])


@CHECKERS
@pytest.mark.parametrize("file", ["accepted.py", "untyped.py"])
def test_code_that_is_right_is_accepted(checker: Callable[[], Findings], file: str) -> None:
    findings = checker()

    assert findings[file] == {}


@CHECKERS
def test_every_mistake_is_found(checker: Callable[[], Findings]) -> None:
    lines = (HERE / "rejected.py").read_text().splitlines()
    unseen = NOT_BY_TY if checker is ty else "nothing"
    expected = {number for number, line in enumerate(lines, 1) if MARK in line and unseen not in line}

    findings = checker()

    missed = {number: lines[number - 1].strip() for number in expected - set(findings["rejected.py"])}
    surplus = {line: text for line, text in findings["rejected.py"].items() if line not in expected}
    assert (missed, surplus) == ({}, {})
