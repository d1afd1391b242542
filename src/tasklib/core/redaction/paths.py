"""Where in a value something is secret: keys joined by points.

`*` is every key or position, `*|to|subject` every key but these.  In a key `~1` stands for a point, `~2` for a bar and
`~0` for a tilde.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

SECRETS_HEADER: Final = "tasklib.secrets"
"""The header of a row with the paths of the arguments that the code declares secret."""

Path: TypeAlias = tuple[str, ...]


def join_path(path: Sequence[str]) -> str:
    """The path as text; its parts are made by `key_part`, `EVERY` or `every_but`."""
    return ".".join(path)


def key_part(key: str) -> str:
    """The part of a path that means one key."""
    return key.replace("~", "~0").replace(".", "~1").replace("|", "~2")


EVERY: Final = "*"
"""The part of a path that means every key or position."""


def every_but(keys: Iterable[str]) -> str:
    """The part of a path that means every key but these."""
    return "|".join((EVERY, *map(key_part, keys)))


def split_paths(paths: Iterable[str]) -> list[Path]:
    """The paths of texts; the empty text is the value itself."""
    return [tuple(each.split(".")) if each else () for each in paths]


def below(paths: Sequence[Path], key: str) -> list[Path]:
    """What is secret under a key, of paths that begin above it."""
    if not paths:
        return []
    part = key_part(key)
    return [path[1:] for path in paths if path and _means(path[0], part)]


def marked_paths(headers: Mapping[str, Any]) -> list[str]:
    """What the headers of a row say is secret."""
    marked = headers.get(SECRETS_HEADER)
    return list(map(str, marked)) if isinstance(marked, list) else []  # pyright: ignore[reportUnknownArgumentType]


def _means(part: str, key: str) -> bool:
    if part in (key, EVERY):
        return True
    return part.startswith("*|") and key not in part.split("|")[1:]
