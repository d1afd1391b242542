"""All three type checkers accept code that is right, the documents too, and find every mistake."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.typing.documents import PACKAGE, write_documents

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RIGHT = ("accepted.py", "untyped.py", "workflows.py")
WRONG = "rejected.py"
MARK = "# expect-error"
NOT_BY_TY = "# expect-error (not by ty)"
"""ty takes any name for a key of `**options: Unpack[...]`, and only checks the values of those that it knows."""

Findings = Mapping[str, Mapping[int, str]]
"""File → line → what was found there."""


def mypy(folder: Path) -> Findings:
    command = [sys.executable, "-m", "mypy", "--output=json", *sources(folder)]
    found: dict[str, dict[int, str]] = {}
    for line in run(command, MYPYPATH=str(folder)):
        finding = json.loads(line)
        if finding["severity"] == "error":
            found.setdefault(Path(finding["file"]).name, {})[finding["line"]] = finding["message"]
    return found


def pyright(folder: Path) -> Findings:
    settings = {
        "include": ["."],
        "strict": ["*.py"],
        "extraPaths": [str(ROOT / "src")],
        "pythonVersion": "3.11",
        # What it would take for types of packages without any, Celery and Django, is what it infers from their source.
        "useLibraryCodeForTypes": False,
        "reportMissingModuleSource": False,
        "reportRedeclaration": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    report = json.loads("\n".join(run(command)))
    assert report["summary"]["filesAnalyzed"] == len(sources(folder))
    found: dict[str, dict[int, str]] = {}
    for finding in report["generalDiagnostics"]:
        start = finding["range"]["start"]["line"] + 1
        found.setdefault(Path(finding["file"]).name, {})[start] = finding["message"]
    return found


def ty(folder: Path) -> Findings:
    command = [sys.executable, "-m", "ty", "check", "--output-format=concise", "--python", sys.prefix]
    paths = ["--extra-search-path", str(ROOT / "src"), "--project", str(folder)]
    found: dict[str, dict[int, str]] = {}
    for line in run([*command, *paths, *sources(folder)]):
        if match := re.fullmatch(r"(.+?):(\d+):\d+: (error.+)", line):
            found.setdefault(Path(match[1]).name, {})[int(match[2])] = match[3]
    return found


def sources(folder: Path) -> list[str]:
    return [str(path) for path in sorted(folder.rglob("*.py"))]


def run(command: list[str], **environment: str) -> list[str]:
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("checker", [mypy, pyright, ty], ids=["mypy", "pyright", "ty"])
def test_what_is_right_is_accepted_and_every_mistake_is_found(
    checker: Callable[[Path], Findings], tmp_path: Path
) -> None:
    """In one run of each checker, which has most to do with what is imported."""
    for name in (*RIGHT, WRONG):
        shutil.copy(HERE / name, tmp_path)
    pages = write_documents(tmp_path)
    lines = (HERE / WRONG).read_text().splitlines()
    unseen = NOT_BY_TY if checker is ty else "nothing"
    expected = {number for number, line in enumerate(lines, 1) if MARK in line and unseen not in line}

    findings = dict(checker(tmp_path))

    rejected = findings.pop(WRONG)
    missed = {number: lines[number - 1].strip() for number in expected - set(rejected)}
    surplus = {line: text for line, text in rejected.items() if line not in expected}
    assert (missed, surplus) == ({}, {})
    places = [(pages.get(file, file), line, text) for file, found in findings.items() for line, text in found.items()]
    assert places == [], "\n".join(f"{file}:{line}: {text}" for file, line, text in places)


def test_all_documents_are_read(tmp_path: Path) -> None:
    """Those with Python in them: the folder of a checker's findings is not empty by accident."""
    assert len(write_documents(tmp_path)) > 45
    assert (tmp_path / PACKAGE / "README__app.py").exists()
