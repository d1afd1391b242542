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
    long = []
    for module in PACKAGE.rglob("*.py"):
        text = module.read_text()
        place = module.relative_to(PACKAGE)
        if text.count("\n") > MOST_LINES:
            long.append(f"{place}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    long.append(f"{place}:{node.lineno}: {node.name} has {lines} lines")
    assert long == []
