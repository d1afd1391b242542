"""A stranger finds a subject by its folder and its file: no folder holds many modules, and no module much code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "tasklib"
MOST_MODULES = 15
MOST_LINES = 430
LONGEST_FUNCTION = 55
MOST_CALLBACKS = 12


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


def test_the_parts_of_the_worker_know_each_other_by_type() -> None:
    """Few of its objects are given or keep a function; arguments of ordinary functions are not counted."""
    modules = {module: ast.parse(module.read_text()) for module in (PACKAGE / "worker").rglob("*.py")}
    names = {"Callable"}.union(*map(aliases_of_callables, modules.values()))
    kept = [
        f"{module.relative_to(PACKAGE)}: {each.name}: {ast.unparse(found)}"
        for module, tree in modules.items()
        for each in ast.walk(tree)
        if isinstance(each, ast.ClassDef)
        for found in callbacks_of(each, names)
    ]
    assert kept, "the count looks at nothing"
    assert len(kept) <= MOST_CALLBACKS, kept


def aliases_of_callables(tree: ast.Module) -> set[str]:
    """The names that the module gives to types of functions."""
    assigned = (each for each in tree.body if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None)
    return {
        ast.unparse(target)
        for each in assigned
        if "Callable[" in ast.unparse(each.value or each)
        for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
    }


def callbacks_of(each: ast.ClassDef, names: set[str]) -> Iterator[ast.AST]:
    """Fields, parameters of the constructor and annotated attributes that are functions."""
    constructors = [m for m in each.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"]
    arguments = [a for m in constructors for a in (*m.args.posonlyargs, *m.args.args, *m.args.kwonlyargs)]
    fields = [m for m in each.body if isinstance(m, ast.AnnAssign)]
    methods = [m for m in each.body if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef)]
    attributes = [a for m in methods for a in ast.walk(m) if isinstance(a, ast.AnnAssign)]
    for found in (*arguments, *fields, *attributes):
        if found.annotation is not None and names & set(re.findall(r"\w+", ast.unparse(found.annotation))):
            yield found


def lines_of_examples(node: ast.AST) -> int:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return 0
    _, _, examples = (ast.get_docstring(node) or "").partition("\nExamples:\n")
    return examples.count("\n") + 4 if examples else 0  # with a heading, and lines above and below
