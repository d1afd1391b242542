"""`docs/specifications.md` names every block of every seed, the test that runs it, and every change of spelling."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.acceptance.seeds.manifest import BLOCKS

HERE = Path(__file__).parent
BROWSER = HERE.parents[1] / "browser"
PAGE = HERE.parents[2] / "docs" / "specifications.md"
ROW = re.compile(r"^\| (\d{3}/\d{2}) \| (.+?) \| (\w+) \| (.+?) \| (.+) \|$", re.MULTILINE)
CHANGE = re.compile(r"^\| ((?:\d{3}/\d{2}(?:, )?)+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
NUMBERS = {"000": 8, "001": 18, "002": 55, "003": 5, "004": 1}


def find_tests(seed: str) -> dict[str, list[str]]:
    """The names of the test functions for each block of a seed."""
    found: dict[str, list[str]] = {}
    files = [file for folder in (HERE, BROWSER) for file in sorted(folder.glob(f"test_seed_{seed}*.py"))]
    for node in (node for file in files for node in ast.parse(file.read_text()).body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            number = re.match(r"test_block_(\d{2})_", node.name)
            assert number, f"{node.name} does not name its block"
            assert ast.get_docstring(node), f"{node.name} does not say which heading it belongs to"
            found.setdefault(f"{seed}/{number[1]}", []).append(node.name)
    return found


def test_the_manifest_has_every_block_once() -> None:
    expected = [f"{seed}/{number:02d}" for seed, last in NUMBERS.items() for number in range(1, last + 1)]

    assert [block.id for block in BLOCKS] == expected


def test_every_block_has_a_test_or_a_reason() -> None:
    tested = {block for seed in NUMBERS for block in find_tests(seed)}

    assert tested == {block.id for block in BLOCKS if not block.untested}


def test_the_page_lists_every_block_with_its_test() -> None:
    tests = {block: names for seed in NUMBERS for block, names in find_tests(seed).items()}
    cells = {id_: "<br>".join(f"`{name}`" for name in names) for id_, names in tests.items()}

    expected = [(b.id, b.heading, b.language, b.what, b.untested or cells[b.id]) for b in BLOCKS]
    assert ROW.findall(PAGE.read_text()) == expected


def test_the_page_explains_every_change_of_spelling() -> None:
    explained = {block for match in CHANGE.finditer(PAGE.read_text()) for block in match[1].split(", ")}

    assert explained == {block.id for block in BLOCKS if block.changed}
