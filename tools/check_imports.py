"""Fails when a module imports from a layer above its own, or when SQL appears outside `storage/`."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.problems import ROOT, Problem, report

# Bottom first. A module may import its own layer and those above it in this table, never one below.
LAYERS = {
    "pure": "errors core definition",
    "storage": "storage",
    "engine": "submission queue worker service doctor testing",
    "front": "http cli contrib pytest_plugin",
    "root": "__init__ __main__",
}
RANK = {module: rank for rank, modules in enumerate(LAYERS.values()) for module in modules.split()}
NAMES = list(LAYERS)

# At the start of a string, in capitals or small letters; "Select a task from …" in a message is prose.
SQL = re.compile(
    r"\s*(?:(?:SELECT\s|INSERT\s+INTO\s|UPDATE\s+\S+\s+SET\s|DELETE\s+FROM\s|WITH\s.*\bAS\s.*\bSELECT\s|"
    r"(?:CREATE|ALTER|DROP)\s+(?:UNIQUE\s+)?(?:TABLE|INDEX|SCHEMA|TRIGGER|FUNCTION)\s)|"
    r"(?:select\s.*\sfrom\s|insert\s+into\s|update\s+\S+\s+set\s|delete\s+from\s))",
    re.DOTALL,
)


def find_problems(package: Path) -> list[Problem]:
    """Every import against the direction and every SQL string outside storage, in the package's folder."""
    return [problem for path in sorted(package.rglob("*.py")) for problem in check_file(package, path)]


def check_file(package: Path, path: Path) -> Iterator[Problem]:
    own = path.relative_to(package).parts[0].removesuffix(".py")
    tree = ast.parse(path.read_text(), str(path))
    if own not in RANK:
        yield Problem(path, 1, f"module {own} has no layer: add it to LAYERS in tools/check_imports.py")
        return
    for node, module in imports_of(tree, package.name):
        if module not in RANK:
            yield Problem(path, node.lineno, f"imports {module}, which has no layer in tools/check_imports.py")
        elif RANK[module] > RANK[own]:
            layers = f"{NAMES[RANK[own]]} module {own} imports {NAMES[RANK[module]]} module {module}"
            yield Problem(path, node.lineno, layers)
    if own != "storage":
        for line, text in strings_of(tree):
            if SQL.match(text):
                yield Problem(path, line, f"SQL outside storage/: {' '.join(text.split())[:60]!r}")


def imports_of(tree: ast.Module, package: str) -> Iterator[tuple[ast.stmt, str]]:
    """Each import of our own, by the module's first name; the package itself counts as its root."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            # `from tasklib import errors` names a module, `from tasklib import TaskQueue` the root.
            found = [f"{node.module}.{alias.name}" for alias in node.names]
            names = found if node.module == package else [node.module]
        for name in names:
            first, _, rest = name.partition(".")
            # A plain `import tasklib` is how the front ends ask for the version; it names no module.
            if first == package and rest and isinstance(node, ast.stmt):
                module = rest.partition(".")[0]
                yield node, module if module in RANK or f"{package}.{module}" != name else "__init__"


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
        "move the code to a layer that may know it, or hand it in by a Protocol; SQL goes to storage/*/sql/.",
    )
