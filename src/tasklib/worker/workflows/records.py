"""Recorded steps and their values: as JSON, and as the types that the code declares."""

from __future__ import annotations

import hashlib
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from weakref import WeakKeyDictionary

from tasklib.core.codec import dumps, encode_result, hides_secret, loads, shown
from tasklib.definition.compiling import Compiled, compile_type
from tasklib.definition.parameters import underlying
from tasklib.errors import ResultError, TaskDefinitionError

ERROR_CHARACTERS: Final = 2000
"""How much of a failed step's message is kept."""
OF_CHILDREN: Final = frozenset({"run", "map", "flow"})
"""The kinds of steps whose value, while they are open, names the group of their children."""


@dataclass(slots=True)
class Record:
    """One step as it is stored."""

    key: str
    number: int
    kind: str
    state: str
    digest: str | None = None
    value: Any = None
    error: Mapping[str, str] | None = None
    tries: int = 0
    left: float | None = None
    """Seconds until its deadline, as of when it was loaded."""
    note: str | None = None
    has_undo: bool = False
    passed: bool = False
    """Whether the function has begun something since it ended."""
    ask: Mapping[str, Any] | None = None
    """The question to a person, with the schema of its answer."""
    events: Sequence[str] | None = None
    """What an open wait waits for."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Record:
        """The record from a row of the journal's answer."""
        return cls(**{name: data[name] for name in cls.__slots__ if name in data})


class ValueType:
    """How the values of one step are written and read: by an annotation, or as plain JSON without one."""

    __slots__ = ("_annotation", "_compiled", "_limit", "_remedy", "_what")

    def __init__(
        self, what: str, annotation: Any, limit: int | None, remedy: str = "correct what it says that it returns"
    ) -> None:
        self._what = what
        self._remedy = remedy
        self._limit = limit
        self._annotation = annotation
        self._compiled = None if annotation in (Any, inspect.Parameter.empty) else _compiled(what, annotation)

    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of a value; it accepts everything without an annotation."""
        if self._annotation in (Any, inspect.Parameter.empty):
            return {}
        from pydantic import TypeAdapter

        found: Mapping[str, Any] = TypeAdapter(self._annotation).json_schema()
        return found

    def write(self, value: Any) -> str:
        """The value as JSON text; ResultError for what cannot be stored, and for a secret, of which only a mask would
        remain."""
        given = value
        if self._compiled is not None:
            try:
                value = self._compiled.dump(value, mode="json", round_trip=True, warnings=False)
            except Exception as error:
                raise ResultError(f"{self._what} returned {shown(value)}, which cannot be stored: {error}") from error
        text = encode_result(value, limit=self._limit)[len('{"value":') : -1]
        if hides_secret(given, text):
            raise ResultError(
                f"{self._what} returned a secret of Pydantic's, and only its mask would be recorded; return what "
                "may be stored and shown, or read the secret where it is used"
            )
        return text

    def read(self, value: Any) -> Any:
        """The value as the code's type; a ResultError if it does not fit (any more)."""
        if self._compiled is None:
            return value
        try:
            return self._compiled.validate(value, by_alias=True, by_name=True)
        except self._compiled.error:
            pass
        try:
            # Strict types take a date or an enum from JSON text only.
            return self._compiled.validate_json(dumps(value), by_alias=True, by_name=True)
        except ValueError as error:
            raise ResultError(f"the value of {self._what} does not fit its type: {error}; {self._remedy}") from error

    def passed_through(self, value: Any) -> tuple[str, Any]:
        """The value as JSON text, and as the code sees it, both in the first run and in a replay."""
        text = self.write(value)
        return text, self.read(loads(text))


def _compiled(what: str, annotation: Any) -> Compiled:
    """The type as Pydantic compiles it, once for all steps of that type: it takes longer than to record a step."""
    with suppress(TypeError, TaskDefinitionError):  # it cannot be hashed, or the error below says for which step
        # Its text too, because unions compare equal in any order but do not convert alike.
        return _compiled_once(annotation, str(annotation))
    try:
        return compile_type(what, annotation)
    except TaskDefinitionError as error:
        raise TaskDefinitionError(f"{error}; the value of a step is recorded, so it must have a JSON form") from error


@lru_cache(maxsize=1024)
def _compiled_once(annotation: Any, text: str) -> Compiled:
    return compile_type(text, annotation)


def return_annotation(function: Callable[..., Any]) -> Any:
    """The function's return annotation; Any if there is none or it cannot be resolved."""
    target = underlying(function)
    with suppress(TypeError):  # no weak references to it, or no hash
        if (known := _RETURNS.get(target)) is not None:
            return known
    try:
        found = typing.get_type_hints(target, include_extras=True).get("return", Any)
    except Exception:  # noqa: BLE001  annotations may name what is imported for type checkers only
        return Any
    with suppress(TypeError):
        _RETURNS[target] = found
    return found


_RETURNS: Final[WeakKeyDictionary[Callable[..., Any], Any]] = WeakKeyDictionary()
"""A cache of return annotations while their functions live: every step needs one."""


def digest_of(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """A hash of the function's name and its arguments; None where they have no JSON form to compare."""
    target = underlying(function)
    try:
        text = dumps([getattr(target, "__qualname__", str(target)), list(args), dict(kwargs)])
    except Exception:  # noqa: BLE001  whatever cannot be written is not compared
        return None
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def code_hash(function: Callable[..., Any]) -> str:
    """A hash of the file that defines the function, or of its code: other code has another."""
    return _hash_of(underlying(function))  # which can be hashed, where a callable object may not


@lru_cache(maxsize=1024)
def _hash_of(target: Callable[..., Any]) -> str:
    try:
        source = inspect.getsourcefile(target)
        if source is not None:
            with open(source, "rb") as file:
                return hashlib.blake2b(file.read(), digest_size=8).hexdigest()
    except (OSError, TypeError):
        pass
    code = getattr(getattr(target, "__code__", None), "co_code", b"")
    return hashlib.blake2b(code if isinstance(code, bytes) else b"", digest_size=8).hexdigest()  # a mock's is a mock
