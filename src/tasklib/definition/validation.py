"""Values checked by Pydantic when a task is submitted, and turned back into their types when it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tasklib.core.codec import MASK, check_plain, dumps, path_text, plain, plain_array, refuse_iterators, shown
from tasklib.core.redaction import Redactor, Texts, join_path, secret_texts
from tasklib.core.redaction.paths import Path, below, split_paths
from tasklib.definition.compiling import Compiled, compile_type
from tasklib.definition.secrets import hidden_paths
from tasklib.errors import InvalidArguments

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails, ValidationError

MOST_HIDDEN: Final = 100
"""How many places of secrets are remembered that the type does not show."""
MAX_PROBLEMS: Final = 20
"""How many problems one error lists."""


class Misfit(Exception):
    """One of many values does not fit: which one, counted from 0, and its error."""

    def __init__(self, index: int, error: InvalidArguments) -> None:
        super().__init__(index, error)
        self.index = index
        self.error = error


class Validation:
    """One type, compiled by Pydantic at its first use; what `accept` lets through, `read` can read.

    Where members of a union have the same JSON form (`datetime | str`), Pydantic decides which one arrives.
    """

    __slots__ = ("_build", "_compiled", "_hidden", "_many", "_names", "_task")

    def __init__(self, task: str, build: Callable[[], Any], names: tuple[str, ...] = ()) -> None:
        """`build` makes the type; `names` are the parameters, for messages."""
        self._task = task
        self._build = build
        self._names = names
        self._compiled: Compiled | None = None
        self._many: Compiled | None = None
        """The same for a list of such values."""
        self._hidden: dict[str, None] = {}
        """Where Pydantic has masked something that the type did not show to be secret, in values seen so far."""

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
        except Exception:  # noqa: BLE001  the user's serializers and validators run here; below the error names the row
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
        """Where in the value something is secret by its type, as dotted paths; `*` is every key or position."""
        return ((self._compiled or self.compile()).secrets) + tuple(self._hidden)

    def compile(self) -> Compiled:
        """Compile the type now; one that Pydantic cannot check is a TaskDefinitionError."""
        with _compiling:
            if self._compiled is None:
                self._compiled = compile_type(self._task, self._build())
            return self._compiled

    def _compile_many(self) -> Compiled:
        with _compiling:
            if self._many is None:
                self._many = compile_type(self._task, list[self._build()])  # type: ignore[misc]
            return self._many

    def _stored(self, compiled: Compiled, typed: Any, limit: int | None) -> Any:
        stored = self._dump(compiled, typed, limit)
        if not compiled.is_simple:
            self._check_readable(stored)
        return stored

    def _stored_each(self, typed: Iterable[Any], limit: int | None) -> list[Any]:
        compiled, stored = self._compiled or self.compile(), list[Any]()
        for value in typed:
            try:
                refuse_iterators(value, what=self._task)  # `accept_all` has written it already
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

    def _dump(self, compiled: Compiled, typed: Any, limit: int | None) -> Any:
        masked = None
        try:
            masked = compiled.dump(typed, mode="json", round_trip=True, warnings=False)
        except Exception:  # noqa: BLE001  the user's serializers run here; `plain` below names the place
            pass
        else:
            if check_plain(masked, what=self._task, limit=limit):
                return masked
        refuse_iterators(typed, what=self._task)
        # Pydantic masks secrets in JSON but not in Python values, which `plain` then stores unmasked.
        try:
            written = compiled.dump(typed, mode="python", round_trip=True, warnings=False)
        except Exception as error:
            problem = f"they cannot be written as JSON ({type(error).__name__}: {error})"
            raise InvalidArguments(self._task, [problem]) from error
        opened = plain(written, what=self._task, limit=limit)
        self._note_hidden(compiled, opened, masked)
        return opened

    def _note_hidden(self, compiled: Compiled, opened: Any, masked: Any) -> None:
        """Remember what is secret by a serializer of the user's, or in a way that the type does not show."""
        shown = Redactor("")
        if masked is None or shown.value(opened, self.secrets) == shown.value(masked, self.secrets):
            return
        for path in hidden_paths(opened, masked):
            # With secrets in ever new places, the whole value is treated as secret.
            place = join_path(path) if len(self._hidden) < MOST_HIDDEN else ""
            if place not in compiled.secrets:
                self._hidden[place] = None

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
        got = self._shown(detail)
        # A validator of the user's may quote what it was given.
        message = Texts(secret_texts(detail["input"])).text(detail["msg"]) if MASK in got else detail["msg"]
        return f"{start}{message} (got {got})"

    def _shown(self, detail: ErrorDetails) -> str:
        """The value at fault, masked where secrets are."""
        redactor, places, below_it = Redactor(), set(split_paths(self.secrets)), set[Path]()
        for part in map(str, detail["loc"]):
            if redactor.value({part: ""}) != {part: ""}:
                return MASK
            # Pydantic names members of unions on the way, which are in no path: any part may be one.
            below_it |= set(below((*places, *below_it), part))
        given = detail["input"]
        return shown(redactor.value(given, map(join_path, below_it if isinstance(given, str) else places | below_it)))


def _details(error: ValidationError) -> list[ErrorDetails]:
    return error.errors(include_url=False, include_context=False)


_compiling: Final = threading.RLock()
