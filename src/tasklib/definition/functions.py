"""Python functions that may become tasks: their code, which of them are unsuitable, and wrappers that hide others."""

from __future__ import annotations

import inspect
import sys
from asyncio import coroutines
from types import CellType, CodeType, FunctionType
from typing import Any, Final, cast

from tasklib.core.codec import shown
from tasklib.definition.parameters import AnyFunction, underlying
from tasklib.errors import TaskDefinitionError


def _coroutine_marks() -> dict[str, Any]:
    mark = getattr(coroutines, "_is_coroutine", None)
    found: dict[str, Any] = {} if mark is None else {"_is_coroutine": mark}
    if sys.version_info >= (3, 12):
        found |= vars(inspect.markcoroutinefunction(lambda: None))
    return found


COROUTINE_MARKS: Final = _coroutine_marks()
"""Attributes that mark an object as a coroutine function: for asyncio, and from Python 3.12 on for `inspect`."""
REMEDY = "put @functools.wraps(function) on the wrapper inside that decorator"


def default_name(function: AnyFunction) -> str:
    """The task's name when none is given: the function's own."""
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise TaskDefinitionError(f'{shown(function)} has no name of its own; give the task one: @task(name="...")')
    return name


def refuse_unsuitable(function: Any, name: str) -> None:
    """Raise TaskDefinitionError for a class, a method, a generator function, or what cannot be called by names."""
    problem = None
    if isinstance(function, type):
        problem = f"{function.__qualname__} is a class; a task is a function, so write one that calls it"
    elif isinstance(function, classmethod) or not callable(function):
        problem = f"{shown(cast('Any', function))} cannot be called; a task is a function"
    elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        problem = "a generator function has no result to store; return a list, or submit one task per item"
    elif isinstance(function, FunctionType) and hasattr(function, "dispatch") and hasattr(function, "registry"):
        problem = (
            "a functools.singledispatch function chooses by an argument's position, but arguments are stored by name; "
            "write a function that calls it"
        )
    elif _is_method(function):
        problem = (
            f"{function.__qualname__} is a method, and the object it belongs to cannot be stored; "
            "use a function outside the class, or a @staticmethod"
        )
    if problem:
        raise TaskDefinitionError(f"task {name!r}: {problem}")


def is_async(function: Any) -> bool:
    """Whether calling the function, or the callable object, gives something to await."""
    if inspect.iscoroutinefunction(function):
        return True
    if any(getattr(function, name, None) is mark for name, mark in COROUTINE_MARKS.items()):
        return True
    return not isinstance(function, FunctionType) and inspect.iscoroutinefunction(cast("Any", type(function)).__call__)


def identity_of(function: Any) -> tuple[str, str]:
    """The module and the qualified name of the function whose code counts."""
    function = underlying(function)
    return str(getattr(function, "__module__", "")), str(getattr(function, "__qualname__", function))


def place_of(function: Any) -> str:
    """Where the function is defined, for messages: `app.tasks.send_email (app/tasks.py:12)`."""
    code = _code_of(function)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return ".".join(identity_of(function)) + where


def redefines(new: Any, old: Any) -> bool:
    """Whether `new` is `old` defined again, as when a module or a notebook's cell runs again.

    Two functions of one name that come from one run of the same code are different ones.
    """
    if identity_of(new) != identity_of(old) or hidden_functions(new) != hidden_functions(old):
        return False
    mine, its = _code_of(new), _code_of(old)
    if mine is None or its is None or _position(mine) == _position(its):
        return True
    body = _running_body(mine)
    if body is None:
        return "<lambda>" not in identity_of(new)[1]  # every lambda of a module has the same name
    return not _is_inside(its, body)


def hidden_functions(function: Any) -> list[tuple[str, str]]:
    """Module and name of what a decorator's wrapper calls, if it passes any arguments on without `functools.wraps`."""
    if not isinstance(function, FunctionType) or hasattr(function, "__wrapped__"):
        return []
    if not function.__code__.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return []
    held = [_held(cell) for cell in function.__closure__ or ()]
    return [(each.__module__, each.__qualname__) for each in held if isinstance(each, FunctionType)]


def _held(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None


def _code_of(function: Any) -> CodeType | None:
    code = getattr(underlying(function), "__code__", None)
    return code if isinstance(code, CodeType) else None


def _position(code: CodeType) -> tuple[str, int]:
    return code.co_filename, code.co_firstlineno


def _running_body(code: CodeType) -> CodeType | None:
    """The body of the module, cell, class or function that is running and defines this code."""
    frame = sys._getframe()  # noqa: SLF001  there is no other way; only two tasks of one name pay for it
    while frame is not None:
        if _is_inside(code, frame.f_code):
            return frame.f_code
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _is_inside(code: CodeType, body: CodeType) -> bool:
    """Whether the body defines it: by identity, because code that is compiled again is another object."""
    inner = [each for each in body.co_consts if isinstance(each, CodeType)]
    # A function with type parameters is in a scope of its own.
    return any(each is code or (each.co_name.startswith("<generic") and _is_inside(code, each)) for each in inner)


def _is_method(function: Any) -> bool:
    """Whether it was defined in a class body and would need an object as its first argument."""
    if not isinstance(function, FunctionType):
        return False
    parent = function.__qualname__.rpartition(".")[0]
    if not parent or parent.endswith("<locals>"):
        return False
    return function.__code__.co_varnames[: function.__code__.co_argcount][:1] in (("self",), ("cls",))
