"""Decorators that hide the function they wrap, because they leave out `functools.wraps`."""

from __future__ import annotations

from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CellType, FunctionType
from typing import Any

REMEDY = "put @functools.wraps(function) on the wrapper inside that decorator"


def hidden_functions(function: Any) -> list[tuple[str, str]]:
    """Module and name of what a wrapper calls, if it passes any arguments on and does not say for whom."""
    if not isinstance(function, FunctionType) or hasattr(function, "__wrapped__"):
        return []
    if not function.__code__.co_flags & (CO_VARARGS | CO_VARKEYWORDS):
        return []
    held = [_held(cell) for cell in function.__closure__ or ()]
    return [(each.__module__, each.__qualname__) for each in held if isinstance(each, FunctionType)]


def _held(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None
