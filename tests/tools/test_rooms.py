"""A stranger finds a subject by its folder and its file: no folder holds many modules, and no module much code."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "tasklib"
MOST_MODULES = 15
MOST_LINES = 430
LONGEST_FUNCTION = 55


def test_no_folder_has_more_modules_than_one_can_survey() -> None:
    """`__init__.py` says what a folder is for, and is not counted."""
    folders = {module.parent for module in PACKAGE.rglob("*.py")}
    counted = {
        str(folder.relative_to(PACKAGE)): sum(module.name != "__init__.py" for module in folder.glob("*.py"))
        for folder in folders
    }
    assert {name: count for name, count in counted.items() if count > MOST_MODULES} == {}


def test_no_module_and_no_function_is_long() -> None:
    """The examples in docstrings are for readers, and not counted."""
    long = []
    for module in PACKAGE.rglob("*.py"):
        text = module.read_text()
        place = module.relative_to(PACKAGE)
        tree = ast.parse(text)
        if (total := text.count("\n") - sum(map(lines_of_examples, ast.walk(tree)))) > MOST_LINES:
            long.append(f"{place}: {total} lines")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1 - lines_of_examples(node)
                if lines > LONGEST_FUNCTION:
                    long.append(f"{place}:{node.lineno}: {node.name} has {lines} lines")
    assert long == []


def lines_of_examples(node: ast.AST) -> int:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return 0
    _, _, examples = (ast.get_docstring(node) or "").partition("\nExamples:\n")
    return examples.count("\n") + 4 if examples else 0  # with a heading, and lines above and below
