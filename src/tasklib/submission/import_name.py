"""Tasks in other processes: pickled by the name under which their module has them, as functions are."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

from tasklib.definition import Definition
from tasklib.errors import TaskDefinitionError

T = TypeVar("T")


def find_by_import(definition: Definition, kind: type[T]) -> tuple[str, T]:
    """The task of this definition in the module of its function, and its name there; none is a TaskDefinitionError."""
    function: Any = definition.function
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    qualified = str(getattr(function, "__qualname__", ""))
    candidates = [(qualified, _attribute(module, qualified)), *(list(vars(module).items()) if module else [])]
    for name, value in candidates:
        if isinstance(value, kind) and getattr(value, "definition", None) is definition:
            return name, value
    raise TaskDefinitionError(
        f"task {definition.name!r} cannot be pickled, because no name in the module of {definition.place} leads to it: "
        "define it at the top of that module, or send its name and call queue.enqueue(name, payload)"
    )


def _attribute(module: Any, qualified: str) -> Any:
    found = module
    for part in qualified.split("."):
        found = getattr(found, part, None)
    return found
