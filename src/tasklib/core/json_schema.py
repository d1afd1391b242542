"""Whether a JSON value fits a JSON Schema, as far as people's answers need it: types, members, choices.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def misfit(value: Any, schema: Mapping[str, Any]) -> str | None:
    """What is wrong with the value, in words; None if it fits."""
    return _misfit(value, schema, schema, "the answer")


def _misfit(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], place: str) -> str | None:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _misfit(value, root.get("$defs", {}).get(name, {}), root, place)
    for choices in (schema.get("anyOf"), schema.get("oneOf")):
        if choices:
            problems = [_misfit(value, each, root, place) for each in choices]
            return None if None in problems else problems[0]
    if "const" in schema and value != schema["const"]:
        return f"{place} must be {schema['const']!r}, got {value!r}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{place} must be one of {', '.join(map(repr, schema['enum']))}, got {value!r}"
    kind: Any = schema.get("type")
    if kind in _TYPES and not _is(value, kind):
        return f"{place} must be of type {kind}, got {value!r}"
    if isinstance(value, dict):
        return _misfit_object(value, schema, root, place)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for number, each in enumerate(value):
            problem = _misfit(each, schema["items"], root, f"{place}[{number}]")
            if problem is not None:
                return problem
    return None


def _misfit_object(
    value: Mapping[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], place: str
) -> str | None:
    members: Mapping[str, Any] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            return f"{place} needs {name!r}"
    for name, each in value.items():
        if name in members:
            problem = _misfit(each, members[name], root, f"{name!r}")
            if problem is not None:
                return problem
        elif schema.get("additionalProperties") is False:
            return f"{place} has no {name!r} (it has {', '.join(members)})"
    return None


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool) and kind in ("integer", "number"):
        return False
    return isinstance(value, _TYPES[kind]) or (kind == "integer" and isinstance(value, float) and value.is_integer())
