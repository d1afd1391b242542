"""Front ends go through the service: none of them knows the storage or runs anything on a queue's database."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tasklib

PACKAGE = Path(tasklib.__file__).parent
FILES = [path for folder in ("cli", "doctor", "http") for path in sorted((PACKAGE / folder).rglob("*.py"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_front_end_knows_no_storage(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []

        assert not any(module.startswith("tasklib.storage") for module in modules), modules
        assert not (isinstance(node, ast.Attribute) and node.attr == "database"), ast.unparse(node)
