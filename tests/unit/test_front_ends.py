"""Front ends go through the service: none of them runs anything on a queue's database.  Imports are import-linter's."""

from __future__ import annotations

import ast
from pathlib import Path

import tasklib

PACKAGE = Path(tasklib.__file__).parent


def test_no_front_end_reaches_for_the_database_of_a_queue() -> None:
    files = [path for folder in ("cli", "doctor", "http") for path in (PACKAGE / folder).rglob("*.py")]
    reached = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(node)}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "database"
    ]

    assert files
    assert reached == []
