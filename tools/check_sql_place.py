"""Fails when SQL appears outside `storage/`; which module may import which is import-linter's to say."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.problems import ROOT, Problem, report

# At the start of a string, in capitals or small letters; "Select a task from …" in a message is prose.
SQL = re.compile(
    r"\s*(?:(?:SELECT\s|INSERT\s+INTO\s|UPDATE\s+\S+\s+SET\s|DELETE\s+FROM\s|WITH\s.*\bAS\s.*\bSELECT\s|"
    r"(?:CREATE|ALTER|DROP)\s+(?:UNIQUE\s+)?(?:TABLE|INDEX|SCHEMA|TRIGGER|FUNCTION)\s)|"
    r"(?:select\s.*\sfrom\s|insert\s+into\s|update\s+\S+\s+set\s|delete\s+from\s))",
    re.DOTALL,
)


def find_problems(package: Path) -> list[Problem]:
    """Every SQL string outside storage, in the package's folder."""
    paths = sorted(path for path in package.rglob("*.py") if path.relative_to(package).parts[0] != "storage")
    return [
        Problem(path, line, f"SQL outside storage/: {' '.join(text.split())[:60]!r}")
        for path in paths
        for line, text in strings_of(ast.parse(path.read_text(), str(path)))
        if SQL.match(text)
    ]


def strings_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every string except docstrings, with its line; what an f-string fills in reads as one word."""
    nodes = list(ast.walk(tree))
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        words = [str(part.value) if isinstance(part, ast.Constant) else "_" for part in parts]
        if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in prose:
            yield node.lineno, "".join(words)


if __name__ == "__main__":
    report(
        find_problems(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "src/tasklib"),
        "SQL goes to storage/*/sql/, and what runs it to storage/operations/.",
    )
