"""Dependencies of a task in FastAPI's own spelling, `Annotated[Session, Depends(get_session)]`, read once.

FastAPI is not imported: a mark is known by its class.  What has no meaning without a request is refused here, when the
task is defined, and not when it runs at night.
"""

from __future__ import annotations

import inspect
import typing
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

from tasklib.core.codec import shown
from tasklib.definition.functions import is_async
from tasklib.definition.parameters import AnyFunction, Parameter, Role, Unresolved, marks_of, read_parameters
from tasklib.errors import TaskDefinitionError

OF_A_REQUEST = ("starlette", "fastapi")
"""Packages whose classes are about a request or its response."""


class Kind(Enum):
    """How a dependency gives its value."""

    VALUE = "it returns it"
    COROUTINE = "it is awaited for it"
    GENERATOR = "it yields it, and cleans up when it is resumed"
    ASYNC_GENERATOR = "it yields it, and cleans up when it is resumed on the event loop"


@dataclass(frozen=True, slots=True, eq=False)
class Dependency:
    """A function that gives the value of a parameter, and what it is called with itself."""

    call: AnyFunction
    kind: Kind
    parameters: tuple[tuple[str, Dependency | Parameter], ...]
    """By name: another dependency, or what the worker fills in."""
    is_shared: bool
    """Whether one attempt calls it once, however often it is needed."""


def read_dependencies(parameters: tuple[Parameter, ...], task: str) -> tuple[tuple[str, Dependency], ...]:
    """The dependencies among a task's parameters, by name; TaskDefinitionError for one that needs a request."""
    return tuple(
        (each.name, _read(each, (_refuse_by_position(each, task),)))
        for each in parameters
        if each.role is Role.DEPENDENCY
    )


def _refuse_by_position(parameter: Parameter, task: str) -> str:
    """How messages begin that are about the task."""
    if parameter.kind in (parameter.kind.POSITIONAL_ONLY, parameter.kind.VAR_POSITIONAL):
        raise TaskDefinitionError(
            f"task {task!r}: parameter {parameter.name!r} gets what it depends on by name; remove the / or * there"
        )
    return f"task {task!r}: parameter {parameter.name!r}"


def _read(parameter: Parameter, path: tuple[str, ...], above: tuple[Any, ...] = ()) -> Dependency:
    call = _callable_of(parameter, path)
    if any(each is call for each in above):
        raise _refusal(path, "depends on itself")
    place = (*path, f"{getattr(call, '__qualname__', shown(call))}()")
    needs = [(each.name, _source(each, place, (*above, call))) for each in _parameters_of(call, place)]
    return Dependency(
        call=call,
        kind=_kind_of(call),
        parameters=tuple((name, source) for name, source in needs if source is not None),
        is_shared=bool(getattr(parameter.mark, "use_cache", True)),
    )


def _callable_of(parameter: Parameter, path: tuple[str, ...]) -> Any:
    """What is called: the function in the mark, or, for a bare `Depends()`, the annotated class itself."""
    given = getattr(parameter.mark, "dependency", None)
    if given is None:
        annotation = parameter.annotation
        given = annotation.__origin__ if typing.get_origin(annotation) is Annotated else annotation
    if isinstance(given, Unresolved) or not callable(given):
        raise _refusal(path, f"depends on {shown(given)}, which cannot be called; write Depends(function)")
    return given


def _parameters_of(call: Any, path: tuple[str, ...]) -> tuple[Parameter, ...]:
    if not isinstance(call, type):
        return read_parameters(call, " → ".join(path))
    if call.__init__ is object.__init__:  # type: ignore[misc]
        return ()
    return read_parameters(call.__init__, " → ".join(path))[1:]  # type: ignore[misc]


def _source(parameter: Parameter, path: tuple[str, ...], above: tuple[Any, ...]) -> Dependency | Parameter | None:
    """Where a parameter of a dependency gets its value from; None if its default will do."""
    match parameter.role:
        case Role.DEPENDENCY:
            return _read(parameter, (*path, repr(parameter.name)), above)
        case Role.CONTEXT | Role.TASK | Role.RESOURCE:
            return parameter
        case Role.EXTRA:
            return None
        case Role.ARGUMENT:
            _refuse_request(parameter, path)
    if parameter.required and parameter.kind is not parameter.kind.VAR_POSITIONAL:
        raise _refusal(
            path,
            f"takes {parameter.name!r} from a request, and a task has none; give it a default, or use a dependency "
            "that needs no request",
        )
    return None


def _refuse_request(parameter: Parameter, path: tuple[str, ...]) -> None:
    for part in (parameter.mark, *marks_of(parameter.annotation)):
        kind = part if isinstance(part, type) else type(part)
        if any(_is_of_a_request(each) for each in kind.__mro__):
            raise _refusal(
                path,
                f"needs {kind.__name__} for {parameter.name!r}, and no request is there when a task runs; submit what "
                "the task needs of the request as an argument, or use a dependency that needs no request",
            )


def _is_of_a_request(kind: type) -> bool:
    return str(kind.__module__).partition(".")[0] in OF_A_REQUEST


def _kind_of(call: Any) -> Kind:
    function: Any = getattr(call, "func", call)  # of a functools.partial
    if not inspect.isroutine(function) and not isinstance(function, type):
        function = type(function).__call__
    if inspect.isasyncgenfunction(function):
        return Kind.ASYNC_GENERATOR
    if inspect.isgeneratorfunction(function):
        return Kind.GENERATOR
    return Kind.COROUTINE if is_async(call) else Kind.VALUE


def _refusal(path: tuple[str, ...], problem: str) -> TaskDefinitionError:
    return TaskDefinitionError(f"{' → '.join(path)} {problem}")
