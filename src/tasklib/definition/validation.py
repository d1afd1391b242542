"""Values checked by Pydantic when a task is submitted, and turned back into their types when it runs."""

from __future__ import annotations

import threading
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Union

from tasklib.codec import MASK, check_plain, dumps, path_text, plain, plain_array, shown
from tasklib.errors import InvalidArguments, TaskDefinitionError
from tasklib.redaction import Redactor

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails, ValidationError

MAX_PROBLEMS: Final = 20
"""How many problems one error lists."""


class Misfit(Exception):
    """One of many values does not fit: which one, counted from 0, and the error to tell."""

    def __init__(self, index: int, error: InvalidArguments) -> None:
        super().__init__(index, error)
        self.index = index
        self.error = error


class Validation:
    """One type, compiled by Pydantic at its first use; what `accept` lets through, `read` can read.

    Where members of a union have the same JSON form (`datetime | str`), Pydantic decides which one arrives.
    """

    __slots__ = ("_build", "_compiled", "_many", "_names", "_task")

    def __init__(self, task: str, build: Callable[[], Any], names: tuple[str, ...] = ()) -> None:
        """`build` makes the type; `names` are the parameters, for messages."""
        self._task = task
        self._build = build
        self._names = names
        self._compiled: _Compiled | None = None
        self._many: _Compiled | None = None
        """The same for a list of such values."""

    def accept(self, value: Any, limit: int | None = None) -> Any:
        """The value as plain JSON if it fits the type; else InvalidArguments with one problem per field."""
        compiled = self._compiled or self.compile()
        try:
            typed = compiled.validate(value, by_alias=True, by_name=True)
        except compiled.error as error:
            raise InvalidArguments(self._task, self._problems(_details(error))) from error
        return self._stored(compiled, typed, limit)

    def accept_all(self, values: Sequence[Any], limit: int | None = None) -> str:
        """What `accept` gives for each value, as one JSON array; the first that does not fit is a Misfit."""
        many = self._many or self._compile_many()
        try:
            typed = many.validate(values, by_alias=True, by_name=True)
        except many.error as error:
            raise self._misfit(error) from error
        try:
            stored = many.dump(typed, mode="json", round_trip=True, warnings=False)
            if not many.is_simple:
                many.validate(stored, by_alias=True, by_name=True)
            array = plain_array(stored, limit)
        except Exception:  # noqa: BLE001  the user's serializers and validators run here; below it is said which row it was
            array = None
        return dumps(self._stored_each(typed, limit)) if array is None else array

    def read(self, stored: Any) -> Any:
        """The typed value of plain JSON; InvalidArguments if it does not fit the type (any more)."""
        compiled = self._compiled or self.compile()
        try:
            return compiled.validate(stored, by_alias=True, by_name=True)
        except compiled.error as error:
            problem = error
        try:
            # Strict types take a date or an enum from JSON text only.
            return compiled.validate_json(dumps(stored), by_alias=True, by_name=True)
        except ValueError:
            raise InvalidArguments(self._task, self._problems(_details(problem)), stored=True) from problem

    @property
    def secrets(self) -> tuple[str, ...]:
        """Where in the value the type says that something is secret, as dotted paths; `*` is every key or position."""
        return (self._compiled or self.compile()).secrets

    def compile(self) -> _Compiled:
        """Compile the type now; one that Pydantic cannot check is a TaskDefinitionError."""
        with _compiling:
            if self._compiled is None:
                self._compiled = _compile(self._task, self._build())
            return self._compiled

    def _compile_many(self) -> _Compiled:
        with _compiling:
            if self._many is None:
                self._many = _compile(self._task, list[self._build()])  # type: ignore[misc]
            return self._many

    def _stored(self, compiled: _Compiled, typed: Any, limit: int | None) -> Any:
        stored = self._dump(compiled, typed, limit)
        if not compiled.is_simple:
            self._check_readable(stored)
        return stored

    def _stored_each(self, typed: Iterable[Any], limit: int | None) -> list[Any]:
        compiled, stored = self._compiled or self.compile(), list[Any]()
        for value in typed:
            try:
                stored.append(self._stored(compiled, value, limit))
            except InvalidArguments as error:
                raise Misfit(len(stored), error) from error
        return stored

    def _misfit(self, error: ValidationError) -> Misfit:
        """Which of many values it was first, with the problems of that one."""
        details = _details(error)
        index = details[0]["loc"][0]
        assert isinstance(index, int)
        of_one = [each for each in details if each["loc"][0] == index]
        for each in of_one:
            each["loc"] = each["loc"][1:]
        return Misfit(index, InvalidArguments(self._task, self._problems(of_one)))

    def _dump(self, compiled: _Compiled, typed: Any, limit: int | None) -> Any:
        try:
            stored = compiled.dump(typed, mode="json", round_trip=True, warnings=False)
        except Exception:  # noqa: BLE001  the user's serializers run here; `plain` below names the place
            stored = None
        else:
            if check_plain(stored, what=self._task, limit=limit):
                return stored
        # Pydantic masks secrets in JSON; as Python values they are kept, and `plain` stores them open.
        opened = compiled.dump(typed, mode="python", round_trip=True, warnings=False)
        return plain(opened, what=self._task, limit=limit)

    def _check_readable(self, stored: Any) -> None:
        try:
            self.read(stored)
        except InvalidArguments as error:
            problems = [f"{problem}, when read back from its JSON form" for problem in error.problems]
            raise InvalidArguments(self._task, problems) from error

    def _problems(self, details: Sequence[ErrorDetails]) -> list[str]:
        problems = [self._problem(each) for each in details[:MAX_PROBLEMS]]
        rest = len(details) - len(problems)
        return [*problems, f"and {rest} more"] if rest else problems

    def _problem(self, detail: ErrorDetails) -> str:
        place = path_text(detail["loc"])
        if detail["type"] == "missing":
            return f"'{place}' is missing"
        if detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1 and self._names:
            return f"'{place}' is not a parameter (parameters: {', '.join(self._names)})"
        start = f"'{place}': " if place else ""
        return f"{start}{detail['msg']} (got {self._shown(detail)})"

    def _shown(self, detail: ErrorDetails) -> str:
        """The value at fault, unless it stands where secrets are, or holds some."""
        *before, last = ("", *map(str, detail["loc"]))
        nested: Any = {last: detail["input"]}
        for part in reversed(before):
            nested = {part: nested}
        hidden = Redactor().value(nested, [f".{each}" for each in self.secrets])
        for part in (*before, last):
            if not isinstance(hidden, dict):
                return MASK
            hidden = hidden[part]
        return shown(hidden)


def _details(error: ValidationError) -> list[ErrorDetails]:
    return error.errors(include_url=False, include_context=False)


@dataclass(frozen=True, slots=True)
class _Compiled:
    validate: Callable[..., Any]
    validate_json: Callable[..., Any]
    dump: Callable[..., Any]
    error: type[ValidationError]
    is_simple: bool
    """Whether every value that fits surely reads back, so that trying it can be spared."""
    secrets: tuple[str, ...]


_compiling: Final = threading.RLock()


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


def _compile(task: str, kind: Any) -> _Compiled:
    from pydantic import TypeAdapter
    from pydantic_core import SchemaSerializer, ValidationError

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
    except Exception as error:
        raise TaskDefinitionError(f"task {task!r}: {_culprit(kind)} cannot be checked: {_advice(error)}") from error
    return _Compiled(
        validate=adapter.validator.validate_python,
        validate_json=adapter.validator.validate_json,
        # The adapter's own writes null for a NaN where anything is taken; ours leaves it there to be refused.
        dump=SchemaSerializer(adapter.core_schema, {"ser_json_inf_nan": "constants"}).to_python,
        error=ValidationError,
        is_simple=_is_simple(kind),
        secrets=() if _is_simple(kind) else tuple(dict.fromkeys(_secrets(kind, (), ()))),
    )


def _secrets(kind: Any, path: tuple[str, ...], inside: tuple[Any, ...]) -> Iterator[str]:
    """The places of Pydantic's secrets in a type: `Secret[str]`, `SecretStr`, alone or inside others."""
    origin = typing.get_origin(kind) or kind
    if hasattr(origin, "get_secret_value"):
        yield ".".join(path)
        return
    if kind in inside:
        return
    inside = (*inside, kind)
    for name, hint in _hints(origin).items():
        yield from _secrets(hint, (*path, name), inside)
    container = isinstance(origin, type) and issubclass(origin, Collection)
    for argument in typing.get_args(kind):
        if not _hints(origin):
            yield from _secrets(argument, (*path, "*") if container else path, inside)


def _hints(kind: Any) -> dict[str, Any]:
    """The fields of a model, a dataclass or a typed dictionary under their names in JSON; empty for other types."""
    fields: Any = getattr(kind, "model_fields", None)
    if isinstance(fields, Mapping):
        return {each.alias or name: each.annotation for name, each in fields.items()}
    if not isinstance(kind, type) or not (hasattr(kind, "__dataclass_fields__") or hasattr(kind, "__total__")):
        return {}
    try:
        return typing.get_type_hints(kind)
    except Exception:  # noqa: BLE001  a name that cannot be resolved here: Pydantic has already said so if it matters
        return {}


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
        members = _members(kind)
        return all(map(_is_simple, members.values())) if members else kind in _SIMPLE
    if origin is Literal:
        return True
    return origin in _SIMPLE_CONTAINERS and all(map(_is_simple, typing.get_args(kind)))


_QUALIFIERS: Final = (typing.Required, typing.NotRequired)
_SIMPLE: Final = (str, int, float, bool, type(None), Any, dict, list)
_SIMPLE_CONTAINERS: Final = (list, dict, Union, types.UnionType)
