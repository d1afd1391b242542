"""JSON that PostgreSQL and SQLite keep the same way: what may be stored, how it is written and read.  Pure.

pydantic-core does the work on the whole value at once.  Only where its text looks odd a walk in Python
decides, so that a refusal can name the place.
"""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any, Final, TypeAlias, cast

from tasklib.errors import InvalidPayload, ResultError

MAX_DEPTH: Final = 64
"""How deeply arrays and objects may be nested."""

MAX_DIGITS: Final = 4300
"""How long an integer may be: Python reads no longer one from text."""

MASK: Final = "**********"
"""What Pydantic writes in place of a secret."""

_GIANT: Final = "0" * (MAX_DIGITS + 1)
_DIGITS: Final = str.maketrans("123456789", "0" * 9)

Path: TypeAlias = tuple[str | int, ...]


def plain(value: Any, *, what: str, limit: int | None = None) -> Any:
    """A copy in plain JSON types, which both databases give back equal; anything else is InvalidPayload.

    Whatever pydantic-core can serialise is accepted.  `limit` bounds the bytes of the compact text.
    Pydantic's secrets are stored in clear, because the task needs them; they are hidden where arguments are shown.
    """
    try:
        copy, data, text = _converted(value)
        if "*" in text and MASK in text:
            copy, data, text = _walked(value)
        if limit is not None and len(data) > limit:
            raise _Refused((), _too_large(copy, data, limit))
    except _Refused as refusal:
        raise InvalidPayload(what, [str(refusal)]) from refusal.__cause__
    return copy


def check_plain(value: Any, *, what: str, limit: int | None = None) -> bool:
    """Refuse what `plain` refuses in a value of plain JSON types; False if a secret may be masked in it."""
    try:
        data, text = _encoded(value)
        if limit is not None and len(data) > limit:
            raise _Refused((), _too_large(value, data, limit))
    except _Refused as refusal:
        raise InvalidPayload(what, [str(refusal)]) from refusal.__cause__
    return "*" not in text or MASK not in text


def refuse_iterators(value: Any, *, what: str) -> None:
    """Refuse a value with an iterator in it, before it is written once more: that would find the iterator empty."""
    try:
        _refuse_iterators(value, (), set())
    except _Refused as refusal:
        raise InvalidPayload(what, [str(refusal)]) from None


def is_storable(text: str) -> bool:
    """Whether both databases keep the text as it is: neither U+0000 nor half of a surrogate pair is in it."""
    return "\0" not in text and (text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text))


def hides_secret(value: Any, text: str) -> bool:
    """Whether `text`, the value's JSON, has a mask where the value has one of Pydantic's secrets."""
    if MASK not in text:
        return False
    try:
        return text.count(MASK) > _walked(value)[2].count(MASK)
    except _Refused:
        return True


def plain_array(values: list[Any], limit: int | None = None) -> str | None:
    """The JSON array of values of plain types, if `check_plain` certainly accepts all of them; else None."""
    core = _core()
    data = core.to_json(values)
    text = data.decode()
    if _looks_odd(text) or ("*" in text and MASK in text) or _is_deep(values, text):
        return None
    if limit is not None and len(data) > limit and any(len(core.to_json(value)) > limit for value in values):
        return None
    return _with_points(text)


def dumps(value: Any) -> str:
    """The value as compact JSON text; NaN, infinities and lone surrogates are a ValueError."""
    text = _core().to_json(value).decode()
    if _may_hold_nan(text):
        json.dumps(_core().to_jsonable_python(value), allow_nan=False)
    return _with_points(text)


def loads(text: str | bytes) -> Any:
    """The value of a JSON text, integers and floats exact.

    What is not JSON is a ValueError, and so is what we never write and nobody could pass on: a value nested deeper than
    200 levels, a lone surrogate, an integer longer than Python reads.
    """
    try:
        return _core().from_json(text, allow_inf_nan=False)
    except ValueError as error:
        if "recursion limit" in str(error):
            raise ValueError("nested deeper than 200 levels") from None
        raise


def dumps_to_show(value: Any) -> str:
    """The value as JSON text for people to see, whatever it holds; infinite numbers are null."""
    return _core().to_json(value).decode()


def size_of(value: Any) -> int:
    """How many bytes the value takes as JSON text."""
    return len(_core().to_json(value))


def loads_start(text: str) -> Any:
    """What the beginning of a JSON text says; a ValueError if it is not the beginning of JSON."""
    return _core().from_json(text, allow_inf_nan=False, allow_partial="trailing-strings")


def encode_result(value: Any, *, limit: int | None = None) -> str:
    """The text `{"value": …}` for the table; what cannot be stored is a ResultError saying what and where."""
    if value is None:
        return '{"value":null}'
    if value is True:
        return '{"value":true}'
    if value is False:
        return '{"value":false}'
    if type(value) is int and -(2**63) <= value < 2**63:
        return f'{{"value":{value}}}'
    try:
        copy, data, text = _converted(value)
        if limit is not None and len(data) > limit:
            raise _Refused((), _too_large(copy, data, limit))
    except _Refused as refusal:
        raise ResultError(_result_message(value, refusal)) from refusal.__cause__
    return f'{{"value":{_with_points(text)}}}'


def shown(value: Any) -> str:
    """The value as a short text for a message."""
    try:
        return _short.repr(value)
    except Exception:  # noqa: BLE001  a message must not fail because of a __repr__
        return f"<{type(value).__name__}>"


def path_text(path: Path) -> str:
    """A place inside a value as people write it: `items[3].name`."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".")


class _Refused(Exception):
    """Why a value cannot be stored, and where in it the reason lies."""

    def __init__(self, path: Path, reason: str) -> None:
        place = path_text(path)
        super().__init__(f"'{place}': {reason}" if place else reason)


class _Core:
    """What is used of pydantic-core, imported at first use: that alone takes 40 ms."""

    __slots__ = ("exponent", "exponent_mark", "from_json", "to_json", "to_jsonable_python")

    def __init__(self) -> None:
        import pydantic_core

        self.to_json: Callable[[Any], bytes] = pydantic_core.to_json
        self.from_json: Callable[..., Any] = pydantic_core.from_json
        self.to_jsonable_python: Callable[[Any], Any] = pydantic_core.to_jsonable_python
        # A large float shows in the text as 1e+22, or as 1e22 before pydantic-core 2.46.
        self.exponent_mark = "+" if b"+" in self.to_json(1e22) else "e"
        self.exponent = re.compile(r"\de\+\d" if self.exponent_mark == "+" else r"\de\d")


_core = cache(_Core)


def _converted(value: Any) -> tuple[Any, bytes, str]:
    """The value in plain types with its JSON as bytes and as text, or a refusal."""
    try:
        copy = _core().to_jsonable_python(value)
    except Exception:  # noqa: BLE001  serializers of the user's types run here; the walk finds which one raised
        return _walked(value)
    return copy, *_encoded(copy)


def _walked(value: Any) -> tuple[Any, bytes, str]:
    copy = _walk(value, (), ())
    data = _core().to_json(copy)
    return copy, data, data.decode()


def _encoded(copy: Any) -> tuple[bytes, str]:
    try:
        data = _core().to_json(copy)
    except ValueError:  # a lone surrogate, or a loop
        return _walked(copy)[1:]
    text = data.decode()
    if _looks_odd(text) or _is_deep(copy, text):
        _walk(copy, (), ())
    return data, text


def _looks_odd(text: str) -> bool:
    """False if the text surely holds nothing refused; what only looks so costs a walk, nothing else."""
    # Each search for a rare character spares the three times slower one behind it.
    return (
        ("\\" in text and "\\u0000" in text)
        or _may_hold_nan(text)
        or (len(text) > MAX_DIGITS and _GIANT in text.translate(_DIGITS))
    )


def _may_hold_nan(text: str) -> bool:
    return ("N" in text and "NaN" in text) or ("I" in text and "Infinity" in text)


def _is_deep(copy: Any, text: str) -> bool:
    if len(text) < 2 * MAX_DEPTH or text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    level = [copy]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for container in level
            for child in (container.values() if type(container) is dict else container)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return False
    return True


def _walk(value: Any, path: Path, parents: tuple[int, ...]) -> Any:
    """The value in plain types, or the refusal of the first thing in it that cannot be stored."""
    match value:
        case None | bool():
            return value
        case Enum():
            return _walk(value.value, path, parents)
        case str():
            return _walk_text(str.__str__(value), path)
        case int():
            return _walk_integer(int(value), path)
        case float():
            return _walk_float(float(value), path)
        case Mapping():
            return _walk_object(value, path, parents)
        case list() | tuple() | set() | frozenset() | deque():
            return _walk_array(cast("Iterable[Any]", value), path, parents)
        case Iterator():  # it may have been read by the attempt before the walk
            raise _read_once(value, path)
        case _:
            inside = _enter(value, path, parents)
            return _walk(_opened(value, path), path, inside)


def _read_once(value: object, path: Path) -> _Refused:
    return _Refused(path, f"an iterator can be read only once (got {shown(value)}); pass a list")


def _refuse_iterators(value: Any, path: Path, seen: set[int]) -> None:
    if isinstance(value, Iterator):
        raise _read_once(value, path)
    if isinstance(value, str | int | float | None) or id(value) in seen:
        return
    seen.add(id(value))
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple | set | frozenset | deque):
        items = enumerate(cast("Iterable[Any]", value))
    elif is_dataclass(value) or hasattr(type(value), "model_fields"):
        items = getattr(value, "__dict__", {}).items()
    if len(path) < MAX_DEPTH:
        for key, item in items:
            _refuse_iterators(item, (*path, key if isinstance(key, int) else str(key)), seen)


def _walk_object(value: Mapping[Any, Any], path: Path, parents: tuple[int, ...]) -> dict[str, Any]:
    inside = _enter(value, path, parents)
    copy: dict[str, Any] = {}
    for key, item in value.items():
        name = _key(key, path)
        copy[name] = _walk(item, (*path, name), inside)
    return copy


def _walk_array(value: Iterable[Any], path: Path, parents: tuple[int, ...]) -> list[Any]:
    inside = _enter(value, path, parents)
    return [_walk(item, (*path, index), inside) for index, item in enumerate(value)]


def _enter(container: object, path: Path, parents: tuple[int, ...]) -> tuple[int, ...]:
    if id(container) in parents:
        raise _Refused(path, f"a {type(container).__name__} that contains itself cannot be written as JSON")
    if len(path) >= MAX_DEPTH:
        raise _Refused(path[:3], f"nested deeper than {MAX_DEPTH} levels below here; flatten it or store it as text")
    return (*parents, id(container))


def _walk_text(text: str, path: Path) -> str:
    nul = text.find("\0")
    if nul >= 0:
        raise _Refused(path, f"PostgreSQL cannot store U+0000, here at character {nul} of {len(text)}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        where = f"here at character {error.start} of {len(text)}"  # not the text itself: it may be a secret
        raise _Refused(path, f"a lone surrogate is not Unicode text, {where}") from None
    return text


def _walk_integer(number: int, path: Path) -> int:
    # 3.3 bits to a digit; the exact comparison is only for the few near the limit.
    if number.bit_length() > 3.3 * MAX_DIGITS and abs(number) >= 10**MAX_DIGITS:
        raise _Refused(path, f"an integer of over {MAX_DIGITS} digits cannot be read back; pass it as text")
    return number


def _walk_float(number: float, path: Path) -> float:
    if not math.isfinite(number):
        raise _Refused(path, f"NaN and infinities are not JSON (got {number!r}); pass None or a string")
    return number


def _key(key: Any, path: Path) -> str:
    if type(key) is str:
        return _walk_text(key, (*path, shown(key)))
    try:
        (name,) = _core().to_jsonable_python({key: None})
    except Exception as error:
        raise _Refused(path, f"the key {shown(key)} cannot become a string ({_first_line(error)})") from error
    return _walk_text(name, (*path, shown(key)))


def _opened(value: Any, path: Path) -> Any:
    """One step from an object towards plain types."""
    try:
        if hasattr(type(value), "get_secret_value"):
            return value.get_secret_value()
        if hasattr(type(value), "__pydantic_serializer__"):
            return value.__pydantic_serializer__.to_python(value, by_alias=True, warnings=False)
        if is_dataclass(value) and not isinstance(value, type):
            return {field.name: getattr(value, field.name) for field in fields(value)}
        return _core().to_jsonable_python(value)
    except Exception as error:
        if isinstance(value, bytes | bytearray):
            raise _Refused(
                path,
                f"bytes cannot be written as JSON (got {shown(value)}, which is not UTF-8 text); pass "
                "base64.b64encode(data).decode() and decode it in the task, or store them elsewhere and pass where",
            ) from error
        got = f"got {shown(value)}: {_first_line(error)}"
        raise _Refused(path, f"{type(value).__name__} cannot be written as JSON ({got})") from error


def _too_large(copy: Any, data: bytes, limit: int) -> str:
    largest = ""
    if isinstance(copy, dict) and len(cast("dict[str, Any]", copy)) > 1:
        sizes = {key: len(_core().to_json(item)) for key, item in cast("dict[str, Any]", copy).items()}
        name = max(sizes, key=sizes.__getitem__)
        largest = f", of which '{name}' takes {sizes[name]:,}"
    size = f"{len(data):,} bytes of JSON{largest}; the limit is {limit:,}"
    return f"{size}: keep it elsewhere and pass a reference"


def _result_message(value: Any, refusal: _Refused) -> str:
    if hasattr(value, "__await__") or hasattr(value, "cr_code"):
        return (
            f"the task returned an awaitable ({shown(value)}) that nobody awaited; "
            "make the function, or what wraps it, `async def`"
        )
    if isinstance(value, Exception):
        return f"the task returned the exception {shown(value)}; raise it instead"
    return f"the result cannot be stored: {refusal}"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _with_points(text: str) -> str:
    """The text with each large float written out, so that jsonb gives a float back.

    jsonb keeps numbers as numeric and would print 1e+22 as an integer; with a point it stays what it was.
    """
    core = _core()
    if core.exponent_mark not in text or not core.exponent.search(text):
        return text
    return _NUMBER.sub(_written_out, text)


_NUMBER: Final = re.compile(r'"(?:[^"\\]|\\.)*"|(?<!\d)-?\d++(?:\.\d++)?e\+?\d+', re.DOTALL)
"""A string, or a number with an exponent; a run of digits is read once."""


def _written_out(match: re.Match[str]) -> str:
    token = match[0]
    return token if token[0] == '"' else f"{Decimal(token):f}.0"


_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60
_short.maxlevel = 3


def number(value: float | None) -> float | None:
    """A number of seconds, whole where it is whole: the column is a float, and 30 should not read 30.0."""
    return int(value) if value is not None and value == int(value) else value
