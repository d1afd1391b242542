"""tools/check_typing.py notices what a type checker refuses and what it does not see, and reads every document."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.documents import blocks_of, documents
from tests.typing.documents import NOT_IN_STUBS, PACKAGE
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


def test_every_example_is_read_where_it_is_in_its_document(tmp_path: Path) -> None:
    """No block of no page is left out; only the name of a file that is imported may differ."""
    places = write(tmp_path)
    examples = [block for document in documents() for block in blocks_of(document, "python")]

    assert len(examples) > 150
    for block in examples:
        wanted = {line.strip() for line in block.text.splitlines() if "import" not in line and NOT_IN_STUBS not in line}
        files = [tmp_path / PACKAGE / name for name, document in places.items() if document == block.path]
        read = [{line.strip() for line in file.read_text().splitlines()[block.line - 1 :]} for file in files]
        assert any(wanted <= lines for lines in read), block.place
