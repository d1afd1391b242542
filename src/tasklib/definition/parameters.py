"""The parameters of a task's function: those that the caller gives, and those that the worker fills in."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Any, TypeAlias, Union, Unpack, cast, get_args, get_origin

from tasklib.core.calls.context import AsyncTaskContext, TaskContext
from tasklib.core.calls.resources import Injected, Resource
from tasklib.core.codec import shown
from tasklib.core.task import Task
from tasklib.errors import TaskDefinitionError

AnyFunction: TypeAlias = Callable[..., Any]
OURS: dict[str, type[Any]] = {
    "AsyncTaskContext": AsyncTaskContext,
    "TaskContext": TaskContext,
    "Task": Task,
    "Resource": Resource,
}
"""What these names mean in an annotation, also where they are imported for type checkers only."""


class Role(Enum):
    """Where the value of a parameter comes from."""

    ARGUMENT = "the caller"
    EXTRA = "the caller, under any other name"
    CONTEXT = "the running attempt's TaskContext"
    TASK = "the running Task"
    RESOURCE = "the worker's state"
    DEPENDENCY = "a function that the worker calls first, named by FastAPI's Depends"


@dataclass(frozen=True, slots=True)
class Unresolved:
    """An annotation that names something not defined yet; it is looked up again at the first use."""

    raw: Any
    reason: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter with its resolved annotation; one without an annotation takes anything."""

    name: str
    kind: inspect._ParameterKind
    required: bool
    annotation: Any
    role: Role = Role.ARGUMENT
    resource: str = ""
    mark: Any = None
    """FastAPI's mark, of the annotation or as the default: a `Depends`, or where in a request the value is."""


def read_parameters(function: AnyFunction, task: str, *, context_first: bool = False) -> tuple[Parameter, ...]:
    """All parameters in order; one that can never be understood is a TaskDefinitionError.

    With `context_first` the first one gets the context, whether or not it is annotated.
    """
    try:
        raw = _signature(function).parameters.values()
    except (ValueError, TypeError) as error:
        raise TaskDefinitionError(f"task {task!r}: {shown(function)} does not say its parameters") from error
    hints = _Hints(function, task)
    read = tuple(_parameter(hints, parameter) for parameter in raw)
    return (_leading_context(read, task), *read[1:]) if context_first else read


def resolve_again(function: AnyFunction, parameter: Parameter, task: str) -> Any:
    """The parameter's annotation, when everything should be defined; if it is not, a TaskDefinitionError."""
    if not isinstance(parameter.annotation, Unresolved):
        return parameter.annotation
    found = _Hints(function, task).resolve(parameter.name, parameter.annotation.raw)
    if isinstance(found, Unresolved):
        raise TaskDefinitionError(
            f"task {task!r}: the annotation {found.raw} of parameter {parameter.name!r} cannot be resolved "
            f"({found.reason}); import the type at run time, not only under TYPE_CHECKING, at module level"
        )
    return found


def read_return(function: AnyFunction, task: str) -> Parameter:
    """What the function says it returns, as if it were a parameter; anything if it does not say it."""
    try:
        raw = _signature(function).return_annotation
        found = Any if raw is inspect.Signature.empty else _Hints(function, task).resolve("return", raw)
    except (
        ValueError,
        TypeError,
    ):  # TaskDefinitionError too: an annotation that is not a type says nothing about the result
        found = Any
    return Parameter("return", inspect.Parameter.KEYWORD_ONLY, True, found)


def underlying(function: Any) -> Any:
    """The innermost function, inside partials, wrappers and callable objects."""
    while True:
        if isinstance(function, functools.partial):
            function = cast("Any", function).func
        elif isinstance(function, types.MethodType):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif hasattr(function, "__code__") or isinstance(function, type | types.BuiltinFunctionType):
            return function
        else:
            return cast("Any", type(function)).__call__


def _signature(function: AnyFunction) -> inspect.Signature:
    # Annotations are evaluated late from 3.14 on, and may name what is not defined yet.
    if sys.version_info >= (3, 14):
        import annotationlib

        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(function)


def _parameter(hints: _Hints, raw: inspect.Parameter) -> Parameter:
    annotation = hints.resolve(raw.name, raw.annotation)
    variable = raw.kind in (raw.VAR_POSITIONAL, raw.VAR_KEYWORD)
    parameter = Parameter(raw.name, raw.kind, raw.default is raw.empty and not variable, annotation)
    if (mark := _mark(raw.default, hints.guess(annotation))) is not None:
        role = Role.DEPENDENCY if _is_depends(mark) else Role.ARGUMENT
        return replace(parameter, role=role, mark=mark)
    if type(raw.default).__name__ == "FieldInfo":
        raise TaskDefinitionError(
            f"task {hints.task!r}: the default of parameter {raw.name!r} is a Pydantic Field, which a plain "
            "call would pass on; write Annotated[type, Field(...)] = default"
        )
    if raw.kind is raw.VAR_KEYWORD:
        if get_origin(guessed := hints.guess(annotation)) is Unpack:
            (given,) = get_args(guessed)
            raise TaskDefinitionError(
                f"task {hints.task!r}: **{raw.name}: Unpack[...] cannot be checked; write its arguments as parameters, "
                f"or take them as one, {raw.name}: {getattr(given, '__name__', given)}"
            )
        return replace(parameter, role=Role.EXTRA)
    role, resource = _injection(raw.name, hints.guess(annotation))
    if role is Role.ARGUMENT and isinstance(raw.default, Injected):
        raise TaskDefinitionError(
            f"task {hints.task!r}: parameter {raw.name!r} has the default injected(), but its annotation does not "
            "say what the worker shall fill in; annotate it TaskContext, AsyncTaskContext, Task or "
            "Annotated[..., Resource()]"
        )
    return replace(parameter, role=role, resource=resource)


def _leading_context(parameters: Sequence[Parameter], task: str) -> Parameter:
    """The first parameter as the one that gets the context; a TaskDefinitionError if it cannot be that."""
    first = parameters[0] if parameters else None
    if first is None or first.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
        got = "has no parameter" if first is None else f"begins with {first.name!r}, which takes no value by that place"
        remedy = "write def f(ctx: TaskContext, ...)"
        raise TaskDefinitionError(f"task {task!r}: context=True fills its first parameter, but it {got}; {remedy}")
    if first.role is not Role.CONTEXT and first.annotation is not Any:
        raise TaskDefinitionError(
            f"task {task!r}: context=True fills its first parameter, but {first.name!r} is annotated "
            f"{shown(first.annotation)}; put the context first, or leave context=True out"
        )
    return replace(first, role=Role.CONTEXT)


def _injection(name: str, annotation: Any) -> tuple[Role, str]:
    """Where the value comes from, and which resource it is."""
    for part in marks_of(annotation):
        if isinstance(part, Resource):
            return Role.RESOURCE, part.name or name
        if part is Resource:
            return Role.RESOURCE, name
        if part is TaskContext or part is AsyncTaskContext:
            return Role.CONTEXT, ""
        if part is Task:
            return Role.TASK, ""
    return Role.ARGUMENT, ""


def _mark(default: Any, annotation: Any) -> Any:
    """FastAPI's mark on a parameter; None if it has none, as everywhere but in its dependencies."""
    marks = (each for each in (default, *marks_of(annotation)) if type(each).__module__ == "fastapi.params")
    return next(marks, None)


def _is_depends(mark: Any) -> bool:
    return any(each.__name__ == "Depends" for each in type(mark).__mro__)


def marks_of(annotation: Any) -> Iterator[Any]:
    """The marks of an Annotated and the types it is about: the members of a union, or the one type."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        yield from annotation.__metadata__
        yield from marks_of(annotation.__origin__)
    elif origin is Union or origin is types.UnionType:
        for member in typing.get_args(annotation):
            yield from marks_of(member)
    else:
        yield annotation


class _Hints:
    """Evaluates annotations one by one, so that an unknown name affects only its own parameter."""

    def __init__(self, function: AnyFunction, task: str) -> None:
        self.task = task
        self._target = underlying(function)

    def resolve(self, name: str, raw: Any) -> Any:
        """The annotation as a type; Unresolved if it names something unknown."""
        if raw is inspect.Parameter.empty:
            return Any
        if isinstance(raw, type):
            return raw
        try:
            found = _evaluate(raw, self._globals, self._locals)
        except (NameError, AttributeError) as error:
            return Unresolved(raw, str(error))
        except Exception as error:
            raise self._not_a_type(name, raw, error) from error
        if isinstance(found, int | float | bytes | tuple | list | dict | set):
            raise self._not_a_type(name, raw, "it is a value")
        return found

    def guess(self, annotation: Any) -> Any:
        """An unresolved annotation with Any for its unknown names, to see what the worker must fill in.

        `Annotated[Engine, Resource()]` works although Engine is imported for type checkers only.
        """
        if not isinstance(annotation, Unresolved):
            return annotation
        known = {**vars(builtins), **self._globals, **self._locals}
        unknown = {name: OURS.get(name, Any) for name in _names(annotation.raw) if name not in known}
        try:
            return _evaluate(annotation.raw, self._globals, {**self._locals, **unknown})
        except Exception:  # noqa: BLE001  the real error is raised when the annotation is needed
            return Any

    def _not_a_type(self, name: str, raw: Any, reason: object) -> TaskDefinitionError:
        annotation = f"the annotation {shown(raw)} of parameter {name!r}"
        return TaskDefinitionError(f"task {self.task!r}: {annotation} is not a type: {reason}")

    @functools.cached_property
    def _globals(self) -> dict[str, Any]:
        return getattr(self._target, "__globals__", {})

    @functools.cached_property
    def _locals(self) -> dict[str, Any]:
        type_parameters = {each.__name__: each for each in getattr(self._target, "__type_params__", ())}
        return {**_enclosing_locals(self._target), **_closure(self._target), **type_parameters}


def _names(raw: Any) -> set[str]:
    """Every name that an annotation not yet evaluated mentions."""
    if isinstance(raw, typing.ForwardRef):
        raw = raw.__forward_arg__
    if isinstance(raw, str):
        return {node.id for node in ast.walk(ast.parse(raw, mode="eval")) if isinstance(node, ast.Name)}
    return set().union(*map(_names, typing.get_args(raw)))


def _evaluate(raw: Any, names: dict[str, Any], locals_: Mapping[str, Any]) -> Any:
    def holder() -> None: ...

    holder.__annotations__ = {"it": raw}
    return typing.get_type_hints(holder, names, locals_, include_extras=True)["it"]


def _closure(target: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, cell in zip(target.__code__.co_freevars, target.__closure__ or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _enclosing_locals(target: Any) -> dict[str, Any]:
    """The variables around a function that is being defined inside another one, where its types may live."""
    outer, inside, _ = target.__qualname__.rpartition(".<locals>.")
    frame = sys._getframe() if inside else None  # noqa: SLF001  inspect.currentframe() is the same, twice as slow
    while frame is not None:
        if frame.f_code.co_qualname == outer and frame.f_globals is target.__globals__:
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}
