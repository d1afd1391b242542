"""What a search text asks for: terms such as `args.order_id:42` and `duration:>5s`, and words.  Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

from tasklib.errors import ConfigurationError

_TERM: Final = re.compile(
    r"(?<!\S)(?P<key>args\.[^\s:\"]+|tag\.[^\s:\"]+|worker|release|duration|wait):(?P<value>\"[^\"]*\"|[^\s\"]\S*)(?!\S)"
)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_TIME: Final = r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)"
_ABOVE: Final = re.compile(rf">=?{_TIME}")
_BELOW: Final = re.compile(rf"<=?{_TIME}")
_BETWEEN: Final = re.compile(rf"(?:{_TIME})?\.\.(?:{_TIME})?")
_INDEX: Final = re.compile(r"\[(\d+)\]")
MOST_TERMS: Final = 20
MOST_PARTS: Final = 20
"""Parts of one path."""
MOST_NUMBERS: Final = 4
"""Parts of one path that are numbers: each may be a place in a list or a key."""


@dataclass(frozen=True, slots=True)
class Range:
    """Seconds from `least` up to, not including, `below`; None for no bound."""

    least: float | None = None
    below: float | None = None


ANY_TIME: Final = Range()


@dataclass(frozen=True, slots=True)
class SearchTerms:
    """A search text, taken apart."""

    text: str | None = None
    """What is left: looked for in payload, tags and error."""
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    worker: str | None = None
    release: str | None = None
    duration: Range = ANY_TIME
    wait: Range = ANY_TIME


def read_search(text: str) -> SearchTerms:
    """The terms of a search text; what looks like none of them is searched for as it stands.

    Examples:
        >>> read_search("args.order_id:42 refused").arguments, read_search("args.order_id:42 refused").text
        ({'order_id': '42'}, 'refused')
        >>> read_search("duration:1s..500ms")
        Traceback (most recent call last):
        tasklib.errors.ConfigurationError: duration:1s..500ms ends before it begins; write the shorter time first
    """
    arguments: dict[str, str] = {}
    tags: dict[str, str] = {}
    found: dict[str, Any] = {}
    terms = list(_TERM.finditer(text))
    if len(terms) > MOST_TERMS:
        raise ConfigurationError(f"a search takes {MOST_TERMS} terms, this one has {len(terms)}; leave some out")
    for each in terms:
        key, value = each["key"], each["value"].strip('"')
        if key.startswith("args."):
            path_of(key[5:])
            arguments[key[5:]] = value
        elif key.startswith("tag."):
            tags[key[4:]] = value
        else:
            found[key] = _range(key, value) if key in ("duration", "wait") else value
    left = " ".join(_TERM.sub(" ", text).split()) if terms else text
    return SearchTerms(left or None, arguments, tags, **found)


def path_of(text: str) -> tuple[str, ...]:
    """The parts of a path into a payload: `order.items[0].sku` and `order.items.0.sku` are the same."""
    given: Any = text
    if not isinstance(given, str):
        raise ConfigurationError(f"no path into a payload: {text!r}; write it as text, like order.items[0].sku")
    parts = tuple(_INDEX.sub(r".\1", text).split("."))
    numbers = sum(part.isdigit() for part in parts)
    if not all(parts) or len(parts) > MOST_PARTS or numbers > MOST_NUMBERS or '"' in text or "\0" in text:
        raise ConfigurationError(f"no path into a payload: {text!r}; write it like order.items[0].sku")
    return parts


def value_at(document: Any, parts: Sequence[str]) -> str | None:
    """The text of the plain value at a path, as a search compares it; None if there is none, or an object or list."""
    for part in parts:
        if isinstance(document, Mapping):
            document = document.get(part, _NOTHING)
        elif isinstance(document, list) and part.isdigit() and int(part) < len(document):  # pyright: ignore[reportUnknownArgumentType]
            document = document[int(part)]  # pyright: ignore[reportUnknownVariableType]
        else:
            return None
    if isinstance(document, str):
        return document
    return text_of(document) if document is None or isinstance(document, bool | int | float) else None


def text_of(value: Any) -> str:
    """A plain value as JSON spells it, a text without its quotes."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def json_paths(parts: Sequence[str]) -> list[str]:
    """The same path in SQLite's spelling: a number may be a place in a list, or a key."""
    ways = [(f"[{part}]", f'."{part}"') if part.isdigit() else (f'."{part}"',) for part in parts]
    return ["$" + "".join(way) for way in product(*ways)]


_NOTHING: Final = object()


def _range(key: str, value: str) -> Range:
    if above := _ABOVE.fullmatch(value):
        return Range(least=_seconds(*above.groups()))
    if below := _BELOW.fullmatch(value):
        return Range(below=_seconds(*below.groups()))
    between = _BETWEEN.fullmatch(value)
    if between is None or value == "..":
        wrong = f"{key}:{value} is no time; write {key}:>5s, {key}:<200ms or {key}:1s..5s"
        raise ConfigurationError(f"{wrong} (units: ms, s, m, h, d)")
    least, unit, most, most_unit = between.groups()
    found = Range(
        None if least is None else _seconds(least, unit or most_unit or ""),
        None if most is None else _seconds(most, most_unit),
    )
    if found.least is not None and found.below is not None and found.below <= found.least:
        raise ConfigurationError(f"{key}:{value} ends before it begins; write the shorter time first")
    return found


def _seconds(number: str, unit: str) -> float:
    return float(number) * _SECONDS[unit]
