"""Where in a type Pydantic's secrets are: `Secret[str]`, `SecretStr` and others, however they are wrapped."""

from __future__ import annotations

import sys
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from tasklib.core.redaction.paths import EVERY, every_but, join_path, key_part

Path: TypeAlias = tuple[str, ...]
Bound: TypeAlias = Mapping[Any, Any]
"""What the type variables of a generic type stand for."""

MOST_LEVELS: Final = 64
"""No value is nested deeper."""


def secret_paths(kind: Any) -> tuple[str, ...]:
    """The places of secrets in values of a type, as paths, under every name by which a field can be given or stored."""
    return tuple(dict.fromkeys(join_path(path) for path in _paths(kind, (), (), {}, [])))


def hidden_paths(opened: Any, masked: Any, path: Path = ()) -> Iterator[Path]:
    """The places where Pydantic writes something else than what is stored: it has masked a secret there."""
    if type(opened) is dict and type(masked) is dict and opened.keys() == masked.keys():
        for key, entry in opened.items():
            yield from hidden_paths(entry, masked[key], (*path, key_part(key)))
    elif type(opened) is list and type(masked) is list and len(opened) == len(masked):
        for entry, other in zip(opened, masked, strict=True):
            yield from hidden_paths(entry, other, (*path, EVERY))
    elif opened != masked or type(opened) is not type(masked):
        yield path


def _paths(kind: Any, path: Path, inside: tuple[Any, ...], bound: Bound, loops: list[tuple[Any, Path]]) -> list[Path]:
    """The places below a path; `loops` takes the places where a type contains one that it is inside of."""
    kind = _resolved(kind, bound)
    origin = typing.get_origin(kind) or kind
    if hasattr(origin, "get_secret_value"):
        return [path]
    if len(path) > MOST_LEVELS:
        return []
    if any(each is kind or each == kind for each in inside):
        loops.append((kind, path))
        return []
    inside = (*inside, kind)
    members = list(_members(kind, origin))
    parts = members or [(part, argument, bound) for part, argument in _arguments(kind, origin)]
    again: list[tuple[Any, Path]] = []
    found = [each for part, hint, own in parts for each in _paths(hint, (*path, *part), inside, own, again)]
    # What is inside of itself has secrets at any depth, if it has any: there all of it is hidden.
    deeper = [at for other, at in again if other == kind] if found else []
    loops += [(other, at) for other, at in again if other != kind]
    return found + deeper


def _resolved(kind: Any, bound: Bound) -> Any:
    """What a new type, an alias or a type variable stands for."""
    for _ in range(MOST_LEVELS):
        if isinstance(kind, TypeVar):
            kind = bound.get(kind, kind.__bound__)
        elif hasattr(kind, "__supertype__"):
            kind = kind.__supertype__
        elif hasattr(kind, "__value__"):
            kind = _alias_value(kind)
        else:
            break
    parameters = _parameters(kind)
    if bound and parameters and typing.get_origin(kind) is not None:
        return kind[tuple(bound.get(each, Any) for each in parameters)]
    return kind


def _alias_value(kind: Any) -> Any:
    """The value of `type Name = …`, also of one with type parameters."""
    arguments, value = typing.get_args(kind), _evaluated(kind)
    parameters = _parameters(value)
    return value[arguments[: len(parameters)]] if arguments and parameters else value


def _evaluated(alias: Any) -> Any:
    """The value of an alias, whose parts may be given as texts, such as its own name."""
    holder = type("Holder", (), {"__annotations__": {"value": alias.__value__}})
    try:
        names = vars(sys.modules[alias.__module__])
        return typing.get_type_hints(holder, names, include_extras=True)["value"]
    except Exception:  # noqa: BLE001  as below
        return alias.__value__


def _parameters(kind: Any) -> tuple[Any, ...]:
    found = getattr(kind, "__parameters__", ())
    return found if type(found) is tuple else ()


def _members(kind: Any, origin: Any) -> Iterator[tuple[Path, Any, Bound]]:
    """The fields of a model, a dataclass, a typed dictionary or a named tuple: part of the path, type, variables."""
    own = dict(zip(_parameters(origin), typing.get_args(kind), strict=False))
    fields: Any = getattr(origin, "model_fields", None) or getattr(origin, "__pydantic_fields__", None)
    if isinstance(fields, Mapping) and isinstance(origin, type):
        if getattr(origin, "__pydantic_root_model__", False):
            yield from (((), field.annotation, own) for field in fields.values())
            return
        named = {name: (field.annotation, [field]) for name, field in fields.items()}
    else:
        named = {name: (hint, list(_metadata(hint))) for name, hint in _hints(origin).items()}
    generator = _alias_generator(origin)
    every: list[str] = []
    for number, (name, (hint, infos)) in enumerate(named.items()):
        keys = [name, *_aliases(infos), *_generated(generator, name)]
        keys += [str(number)] if hasattr(origin, "_fields") else []  # a named tuple may be stored as an array
        every += keys
        yield from (((key_part(key),), hint, own) for key in dict.fromkeys(keys))
    extra = extra_items(origin)
    if extra is not None:
        yield (every_but(dict.fromkeys(every)),), extra, own


def _hints(kind: Any) -> dict[str, Any]:
    """The annotated fields of a class that is stored field by field; empty for other types."""
    marks = ("__dataclass_fields__", "__total__", "_fields")
    if not isinstance(kind, type) or not any(hasattr(kind, mark) for mark in marks):
        return {}
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except Exception:  # noqa: BLE001  a name that cannot be resolved here: Pydantic has already said so if it matters
        return {}


def _arguments(kind: Any, origin: Any) -> Iterator[tuple[Path, Any]]:
    """The types that a generic type was given: of its entries if it is a collection, else of the value itself."""
    arguments: Sequence[Any] = typing.get_args(kind)
    if origin is tuple and Ellipsis not in arguments:
        yield from (((str(number),), each) for number, each in enumerate(arguments))
        return
    is_collection = isinstance(origin, type) and issubclass(origin, Collection)
    if is_collection and issubclass(origin, Mapping) and len(arguments) == 2:
        yield (), arguments[0]  # no key can be hidden alone
        arguments = arguments[1:]
    yield from (((EVERY,) if is_collection else (), each) for each in arguments)


def extra_items(kind: Any) -> Any:
    """The type of what else a typed dictionary or a model takes beside its fields, if it is declared."""
    extra = getattr(kind, "__extra_items__", None)
    if isinstance(kind, type) and hasattr(kind, "model_fields"):
        try:
            annotation = typing.get_type_hints(kind).get("__pydantic_extra__")
        except Exception:  # noqa: BLE001  as above
            return None
        arguments = typing.get_args(annotation)
        extra = arguments[1] if len(arguments) == 2 else None
    return None if extra is None or repr(extra).endswith(("NoExtraItems", "Never")) else extra


def _metadata(hint: Any) -> Iterator[Any]:
    yield from getattr(hint, "__metadata__", ())
    for argument in typing.get_args(hint) if typing.get_origin(hint) in _QUALIFIERS else ():
        yield from _metadata(argument)


def _aliases(infos: Iterable[Any]) -> Iterator[str]:
    """Every other name that fields are given; of a path into another place its first key."""
    for info in infos:
        for name in ("alias", "validation_alias", "serialization_alias"):
            yield from _alias_names(getattr(info, name, None))


def _alias_names(alias: Any) -> Iterator[str]:
    if isinstance(alias, str):
        yield alias
    elif hasattr(alias, "choices"):
        for each in alias.choices:
            yield from _alias_names(each)
    elif hasattr(alias, "path"):
        yield from _alias_names(alias.path[0])


def _alias_generator(origin: Any) -> Any:
    config: Any = getattr(origin, "model_config", None) or getattr(origin, "__pydantic_config__", None)
    return config.get("alias_generator") if isinstance(config, Mapping) else None


def _generated(generator: Any, name: str) -> Iterator[str]:
    for each in ("alias", "validation_alias", "serialization_alias"):
        make = generator if callable(generator) else getattr(generator, each, None)
        if callable(make):
            yield from _alias_names(make(name))


_QUALIFIERS: Final = (typing.Required, typing.NotRequired)
