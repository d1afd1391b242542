"""Fails when mypy, pyright or ty refuses a call that is right, an example of README and docs, or accepts a mistake.

The calls are in `tests/typing/`: all of them must be accepted, but for the lines of `rejected.py` that are marked as
mistakes.  Each checker runs once over everything, because it has most to do with what is imported.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.typing.documents import write_documents
from tools.problems import ROOT, Problem, report

CALLS = ROOT / "tests" / "typing"
RIGHT = ("accepted.py", "untyped.py", "workflows.py")
WRONG = "rejected.py"
MARK = "# expect-error"
NOT_BY_TY = "# expect-error (not by ty)"
"""ty takes any name for a key of `**options: Unpack[...]`, and only checks the values of those that it knows."""

Findings = Mapping[str, Mapping[int, str]]
"""File → line → what was found there."""


def mypy(folder: Path) -> Findings:
    command = [sys.executable, "-m", "mypy", "--output=json", *_sources(folder)]
    found: dict[str, dict[int, str]] = {}
    for line in _run(command, MYPYPATH=str(folder)):
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
        "reportMissingModuleSource": False,
        "reportRedeclaration": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    answer = json.loads("\n".join(_run(command)))
    if answer["summary"]["filesAnalyzed"] != len(_sources(folder)):
        sys.exit(f"pyright has not read every file: {answer['summary']}")
    found: dict[str, dict[int, str]] = {}
    for finding in answer["generalDiagnostics"]:
        start = finding["range"]["start"]["line"] + 1
        found.setdefault(Path(finding["file"]).name, {})[start] = finding["message"]
    return found


def ty(folder: Path) -> Findings:
    command = [sys.executable, "-m", "ty", "check", "--output-format=concise", "--python", sys.prefix]
    paths = ["--extra-search-path", str(ROOT / "src"), "--project", str(folder)]
    found: dict[str, dict[int, str]] = {}
    for line in _run([*command, *paths, *_sources(folder)]):
        if match := re.fullmatch(r"(.+?):(\d+):\d+: (error.+)", line):
            found.setdefault(Path(match[1]).name, {})[int(match[2])] = match[3]
    return found


CHECKERS: Mapping[str, Callable[[Path], Findings]] = {"mypy": mypy, "pyright": pyright, "ty": ty}


def find_problems(checker: str) -> list[Problem]:
    """What this checker refuses although it is right, and the mistakes that it does not see."""
    with tempfile.TemporaryDirectory() as folder:
        pages = write(Path(folder))
        findings = CHECKERS[checker](Path(folder))
    return judge(checker, findings, pages, (CALLS / WRONG).read_text().splitlines())


def write(folder: Path) -> Mapping[str, Path]:
    """The files that a checker reads; by name, the file of the checkout from which each of them is."""
    for name in (*RIGHT, WRONG):
        shutil.copy(CALLS / name, folder)
    return {name: CALLS / name for name in (*RIGHT, WRONG)} | write_documents(folder)


def judge(checker: str, findings: Findings, places: Mapping[str, Path], wrong: list[str]) -> list[Problem]:
    """Compare what was found with the marks at the lines of `wrong`; all other files are right."""
    unseen = NOT_BY_TY if checker == "ty" else "nothing"
    expected = {number for number, line in enumerate(wrong, 1) if MARK in line and unseen not in line}
    rejected = set(findings.get(WRONG, {}))
    problems = [
        Problem(CALLS / WRONG, number, f"{checker} does not find this mistake: {wrong[number - 1].strip()}")
        for number in expected - rejected
    ]
    for file, found in findings.items():
        for line, text in found.items():
            if file != WRONG or line not in expected:
                problems.append(Problem(places.get(file, Path(file)), line, f"{checker} refuses what is right: {text}"))
    return problems


def _sources(folder: Path) -> list[str]:
    return [str(path) for path in sorted(folder.rglob("*.py"))]


def _run(command: list[str], **environment: str) -> list[str]:
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"{command[2]} ended with status {done.returncode}:\n{done.stderr}")
    return done.stdout.splitlines()


if __name__ == "__main__":
    report(
        [problem for checker in CHECKERS for problem in find_problems(checker)],
        "annotate the interface so that all three agree, or mend the example.",
    )
