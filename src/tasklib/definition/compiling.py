"""Types as Pydantic compiles them: how they are checked and written, whether they read back, what in them is secret."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Union

from tasklib.definition.secrets import extra_items, secret_paths
from tasklib.errors import TaskDefinitionError

if TYPE_CHECKING:
    from pydantic_core import ValidationError


@dataclass(frozen=True, slots=True)
class Compiled:
    """What Pydantic made of a type."""

    validate: Callable[..., Any]
    validate_json: Callable[..., Any]
    dump: Callable[..., Any]
    error: type[ValidationError]
    is_simple: bool
    """Whether every valid value reads back, so that no test of it is needed."""
    secrets: tuple[str, ...]


def arguments_type(task: str, required: Mapping[str, Any], optional: Mapping[str, Any], extra: Any) -> Any:
    """The type of a function's keyword arguments: only those given are kept, defaults stay its own.

    `extra` is the annotation of `**kwargs`, or None where other names are refused.
    """
    import typing_extensions

    make: Any = typing_extensions.TypedDict
    members = {name: typing_extensions.Required[kind] for name, kind in required.items()}
    members |= {name: typing_extensions.NotRequired[kind] for name, kind in optional.items()}
    made = make(task, members) if extra is None or extra is Any else make(task, members, extra_items=extra)
    made.__pydantic_config__ = {"extra": "forbid" if extra is None else "allow"}
    return made


def compile_type(task: str, kind: Any) -> Compiled:
    """Have Pydantic read a type; one that it cannot check is a TaskDefinitionError naming the parameter."""
    from pydantic import TypeAdapter
    from pydantic_core import SchemaSerializer, ValidationError

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
    except Exception as error:
        raise TaskDefinitionError(f"task {task!r}: {_culprit(kind)} cannot be checked: {_advice(error)}") from error
    return Compiled(
        validate=adapter.validator.validate_python,
        validate_json=adapter.validator.validate_json,
        # The adapter's own writes null for a NaN where anything is taken; ours leaves it there to be refused.
        dump=SchemaSerializer(adapter.core_schema, {"ser_json_inf_nan": "constants"}).to_python,
        error=ValidationError,
        is_simple=_is_simple(kind),
        secrets=() if _is_simple(kind) else secret_paths(kind),
    )


def _culprit(kind: Any) -> str:
    """Which parameter, or which payload, has a type that Pydantic does not take."""
    from pydantic import TypeAdapter

    members = _members(kind)
    for name, annotation in members.items():
        try:
            TypeAdapter(annotation)
        except Exception:  # noqa: BLE001  whatever it is, this is the parameter
            return f"parameter {name!r}, annotated {annotation},"
    return f"the type {kind}" if not members else "the parameters"


def _advice(error: Exception) -> str:
    reason = str(error).partition("\n")[0].partition(" Set `arbitrary_types_allowed")[0].rstrip(".")
    return (
        f"{reason}; use JSON types, dataclasses or Pydantic models, "
        "or let the worker fill it in with Annotated[..., Resource()]"
    )


def _members(kind: Any) -> dict[str, Any]:
    """The annotations of a TypedDict, without Required and NotRequired; empty for other types."""
    if not hasattr(kind, "__total__"):
        return {}
    return {
        name: typing.get_args(hint)[0] if typing.get_origin(hint) in _QUALIFIERS else hint
        for name, hint in kind.__annotations__.items()
    }


def _is_simple(kind: Any) -> bool:
    origin = typing.get_origin(kind)
    if origin is None:
        members, extra = _members(kind), extra_items(kind)
        if extra is not None and not _is_simple(extra):
            return False
        return all(map(_is_simple, members.values())) if members else kind in _SIMPLE
    if origin is Literal:
        return True
    return origin in _SIMPLE_CONTAINERS and all(map(_is_simple, typing.get_args(kind)))


_QUALIFIERS: Final = (typing.Required, typing.NotRequired)
_SIMPLE: Final = (str, int, float, bool, type(None), Any, dict, list)
_SIMPLE_CONTAINERS: Final = (list, dict, Union, types.UnionType)
