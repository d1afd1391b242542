"""tools/check_typing.py notices what a type checker refuses and what it does not see, and reads every document."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.typing.documents import PACKAGE
from tools.check_typing import CALLS, WRONG, Findings, judge, write
from tools.problems import ROOT

PAGE = ROOT / "README.md"
LINES = ["good()", "bad(1)  # expect-error", "bad(x=1)  # expect-error (not by ty)"]


@pytest.mark.parametrize(
    "checker, findings, places",
    [
        ("mypy", {WRONG: {2: "int", 3: "x"}}, []),
        ("ty", {WRONG: {2: "int"}}, []),
        ("mypy", {}, [(CALLS / WRONG, 2), (CALLS / WRONG, 3)]),
        ("ty", {}, [(CALLS / WRONG, 2)]),
        ("pyright", {WRONG: {1: "int", 2: "int", 3: "x"}}, [(CALLS / WRONG, 1)]),
        ("pyright", {WRONG: {2: "int", 3: "x"}, "README.py": {7: "int"}}, [(PAGE, 7)]),
    ],
    ids=["all-found", "all-that-ty-finds", "none-found", "none-by-ty", "too-many", "in-a-document"],
)
def test_what_is_refused_and_what_is_not_seen_has_its_place(
    checker: str, findings: Findings, places: list[tuple[Path, int]]
) -> None:
    found = judge(checker, findings, {WRONG: CALLS / WRONG, "README.py": PAGE}, LINES)
    assert sorted((problem.path, problem.line) for problem in found) == places


def test_all_documents_are_read(tmp_path: Path) -> None:
    """Those with Python in them: the folder of a checker's findings is not empty by accident."""
    assert len(write(tmp_path)) > 45
    assert (tmp_path / PACKAGE / "README__app.py").exists()
