"""What a task is: a name, a function, its options, and the way from a call to stored JSON and back."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any, Literal, TypeAlias, cast

from tasklib.core.calls.context import AsyncTaskContext, TaskContext
from tasklib.core.calls.current import HasContext
from tasklib.core.codec import dumps, plain, shown
from tasklib.definition.compiling import arguments_type
from tasklib.definition.dependencies import read_dependencies
from tasklib.definition.functions import (
    REMEDY,
    default_name,
    hidden_functions,
    is_async,
    place_of,
    redefines,
    refuse_unsuitable,
)
from tasklib.definition.parameters import (
    AnyFunction,
    Parameter,
    Role,
    read_parameters,
    read_return,
    resolve_again,
    underlying,
)
from tasklib.definition.task_options import RESERVED_OPTIONS, TaskOptions, check_name
from tasklib.definition.validation import Misfit, Validation
from tasklib.errors import InvalidArguments, TaskDefinitionError

Accepts: TypeAlias = Literal["arguments", "payload", "task", "nothing"]
"""What a function is called with: named arguments, the payload as one value, the Task, or neither."""

Call: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


class Definition(ABC):
    """A function that is a task, and how it is called; make one with `for_function` or `for_handler`."""

    __slots__ = ("accepts", "dependencies", "function", "is_async", "name", "options", "parameters")

    accepts: Accepts
    is_async: bool
    """Whether calling the function gives something to await."""

    def __init__(self, function: AnyFunction, name: str, options: TaskOptions | None) -> None:
        refuse_unsuitable(function, name)
        self.function = function
        self.name = name
        self.options = options or TaskOptions()
        self.is_async = is_async(function)
        self.parameters = self._read_parameters()
        if not self.is_async:
            _refuse_async_context(self.parameters, name)
        self.dependencies = read_dependencies(self.parameters, name)
        """What is called before the function, for parameters that it fills in by name."""

    @staticmethod
    def for_function(
        function: AnyFunction, *, name: str | None = None, options: TaskOptions | None = None, context: bool = False
    ) -> FunctionDefinition:
        """A function whose arguments are stored by name and arrive as their annotated types.

        With `context` its first parameter is the context of the attempt.
        """
        named = default_name(function) if name is None else check_name(name)
        return FunctionDefinition(function, named, options, context)

    @staticmethod
    def for_handler(
        name: str, handler: AnyFunction, options: TaskOptions | None = None, payload: Any = None
    ) -> HandlerDefinition:
        """A handler that takes the payload as one value, checked against `payload` or its own annotation."""
        return HandlerDefinition(handler, check_name(name), options, payload)

    @abstractmethod
    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, limit: int | None = None) -> Any:
        """What a submission with these arguments stores, as plain JSON; InvalidArguments if they misfit."""

    def bind_all(self, rows: Sequence[Any], *, limit: int | None = None) -> str:
        """What `bind` gives for each mapping of arguments, as one JSON array; the first misfit is a Misfit."""
        return dumps([self.bind_row(index, row, limit=limit) for index, row in enumerate(rows)])

    def bind_row(self, index: int, row: Any, *, limit: int | None = None) -> Any:
        """What `bind` gives for one of many mappings of arguments; a Misfit names its index."""
        try:
            if not isinstance(row, Mapping):
                raise InvalidArguments(self.name, [f"each row is a mapping of arguments by name, got {row!r}"])
            return self.bind((), cast("Mapping[str, Any]", row), limit=limit)
        except InvalidArguments as error:
            raise Misfit(index, error) from error

    @abstractmethod
    def bind_payload(self, payload: Any, *, limit: int | None = None) -> Any:
        """What a submission of this payload by name stores, as plain JSON; InvalidArguments if it misfits."""

    @abstractmethod
    def call_with(self, stored: Any, context: TaskContext | HasContext) -> Call:
        """What to call the function with, given the stored JSON: `function(*args, **kwargs)`."""

    def read_result(self, value: Any) -> Any:
        """A stored result as a caller that waits for it gets it."""
        return value

    @abstractmethod
    def prepare(self) -> None:
        """Compile the types now instead of at first use; one that cannot work is a TaskDefinitionError."""

    @property
    def place(self) -> str:
        """Where the function is defined, for messages: `app.tasks.send_email (app/tasks.py:12)`."""
        return place_of(self.function)

    def replaces(self, other: Definition) -> bool:
        """Whether this is the other function defined again, as when a module or a notebook's cell runs again."""
        return redefines(self.function, other.function)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {self.place}>"

    @property
    def hidden(self) -> list[tuple[str, str]]:
        """Module and name of what it calls, if it is a decorator's wrapper without `functools.wraps`."""
        return hidden_functions(self.function)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Where in its input something is annotated as secret, as dotted paths."""
        return ()

    def _read_parameters(self) -> tuple[Parameter, ...]:
        return read_parameters(self.function, self.name)


class FunctionDefinition(Definition):
    """A function whose arguments are stored by name and arrive as their annotated types."""

    __slots__ = (
        "_arguments",
        "_context_first",
        "_filled_in",
        "_injected",
        "_positional",
        "_required",
        "_result",
        "argument_names",
    )

    def __init__(
        self, function: AnyFunction, name: str, options: TaskOptions | None, context_first: bool = False
    ) -> None:
        self._context_first = context_first
        super().__init__(function, name, options)
        self.accepts = "arguments"
        for each in self.parameters:
            _refuse_positional(each, name, hidden_functions(function))
        arguments = [each for each in self.parameters if each.role is Role.ARGUMENT]
        self.argument_names = tuple(each.name for each in arguments)
        self._positional = tuple(each.name for each in arguments if each.kind is not each.kind.KEYWORD_ONLY)
        self._required = any(each.required for each in arguments)
        self._injected = tuple(each for each in self.parameters if each.role in _INJECTED)
        self._filled_in = tuple(each for each in self.parameters if each.role in (*_INJECTED, Role.DEPENDENCY))
        self._arguments = Validation(name, self._arguments_type, self.argument_names)
        returned = read_return(function, name)
        self._result = Validation(name, lambda: resolve_again(function, returned, name))

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, limit: int | None = None) -> dict[str, Any]:
        """The arguments of a call by name, only those given; defaults are applied when the task runs."""
        given = self._by_name(args, kwargs) if args else kwargs
        if not given and not self._required:
            return {}
        for each in self._filled_in:
            if each.name in given:
                raise InvalidArguments(self.name, [f"'{each.name}' is filled in by the worker; leave it out"])
        return cast("dict[str, Any]", self._arguments.accept(given, limit))

    def by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, not checked but for their names."""
        given = self._by_name(args, kwargs) if args else dict(kwargs)
        takes_any = any(each.role is Role.EXTRA for each in self.parameters)
        unknown = [name for name in given if name not in self.argument_names and not takes_any]
        if unknown:
            known = ", ".join(self.argument_names)
            raise InvalidArguments(
                self.name, [f"'{name}' is not a parameter (parameters: {known})" for name in unknown]
            )
        return given

    def bind_all(self, rows: Sequence[Any], *, limit: int | None = None) -> str:
        """The arguments of many calls at once."""
        # Where any name is accepted, those that the worker fills in must be refused.
        if self._filled_in and any(each.role is Role.EXTRA for each in self.parameters):
            return super().bind_all(rows, limit=limit)
        try:
            return self._arguments.accept_all(rows, limit)
        except Misfit as misfit:
            row = rows[misfit.index]
            if not isinstance(row, Mapping) or self._filled_in:
                self.bind_row(misfit.index, row)  # bound alone, its error may be clearer
            raise

    def bind_payload(self, payload: Any, *, limit: int | None = None) -> dict[str, Any]:
        """The payload as the named arguments of the function."""
        if not isinstance(payload, Mapping):
            raise InvalidArguments(self.name, [self._not_an_object(payload)])
        return self.bind((), cast("Mapping[str, Any]", payload), limit=limit)

    def arguments(self, stored: Any) -> dict[str, Any]:
        """Stored arguments as their annotated types; InvalidArguments if they do not fit (any more)."""
        if type(stored) is not dict:
            raise InvalidArguments(self.name, [self._not_an_object(stored)], stored=True)
        if not stored and not self._required:
            return {}
        return cast("dict[str, Any]", self._arguments.read(stored))

    def injected(self, context: TaskContext | HasContext) -> dict[str, Any]:
        """What the worker fills in, by parameter name."""
        return {each.name: fill(each, context) for each in self._injected}

    def call_with(self, stored: Any, context: TaskContext | HasContext) -> Call:
        """The stored arguments and what the worker fills in, all by name."""
        kwargs = self.arguments(stored)
        if self._injected:
            kwargs.update(self.injected(context))
        return (), kwargs

    def read_result(self, value: Any) -> Any:
        """A stored result as the type that the function says it returns; as it is stored where that does not fit."""
        try:
            return self._result.read(value)
        except (InvalidArguments, TaskDefinitionError):
            return value

    @property
    def secrets(self) -> tuple[str, ...]:
        """Which arguments are annotated as secret, as dotted paths."""
        takes_any = self.argument_names or any(each.role is Role.EXTRA for each in self.parameters)
        return self._arguments.secrets if takes_any else ()

    def prepare(self) -> None:
        """Compile the argument types now instead of at first use."""
        self._arguments.compile()

    def shadowed_options(self) -> tuple[str, ...]:
        """The arguments named like an option of `submit_task`, to be given through `.options().submit()`."""
        return tuple(name for name in self.argument_names if name in RESERVED_OPTIONS)

    def _read_parameters(self) -> tuple[Parameter, ...]:
        return read_parameters(self.function, self.name, context_first=self._context_first)

    def _by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) > len(self._positional):
            takes = f"takes {len(self._positional)} ({', '.join(self._positional) or 'none'})"
            raise InvalidArguments(self.name, [f"{len(args)} positional arguments were given, but it {takes}"])
        given = dict(zip(self._positional, args, strict=False))
        twice = [f"'{name}' was given by position and by name" for name in given if name in kwargs]
        if twice:
            raise InvalidArguments(self.name, twice)
        return given | dict(kwargs)

    def _not_an_object(self, value: Any) -> str:
        names = ", ".join(self.argument_names) or "none"
        return f"its input must be an object of named arguments ({names}), got {shown(value)}"

    def _arguments_type(self) -> Any:
        arguments = [each for each in self.parameters if each.role is Role.ARGUMENT]
        hints = {each.name: resolve_again(self.function, each, self.name) for each in arguments}
        extra = [resolve_again(self.function, p, self.name) for p in self.parameters if p.role is Role.EXTRA]
        return arguments_type(
            self.name,
            required={each.name: hints[each.name] for each in arguments if each.required},
            optional={each.name: hints[each.name] for each in arguments if not each.required},
            extra=extra[0] if extra else None,
        )


class HandlerDefinition(Definition):
    """A handler that takes the payload as one value, or the Task where a parameter is annotated so."""

    __slots__ = ("_filled", "_payload", "_taker", "declared_payload")

    def __init__(self, handler: AnyFunction, name: str, options: TaskOptions | None, payload: Any = None) -> None:
        super().__init__(handler, name, options)
        self._taker = _payload_taker(self.parameters, name)
        self._filled = tuple(each for each in self.parameters if each.role in _INJECTED)
        self.declared_payload = payload
        self._payload = self._payload_validation(payload)
        takes_task = any(each.role is Role.TASK for each in self._filled)
        self.accepts = "payload" if self._taker else "task" if takes_task else "nothing"

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, limit: int | None = None) -> Any:
        """The one positional argument, or else the keyword arguments, as the payload."""
        if len(args) > 1 or (args and kwargs):
            raise InvalidArguments(self.name, ["a handler takes one payload, or keyword arguments as its payload"])
        return self.bind_payload(args[0] if args else dict(kwargs), limit=limit)

    def bind_payload(self, payload: Any, *, limit: int | None = None) -> Any:
        """The payload as plain JSON, checked against its type where one is known."""
        if self._payload is None:
            return plain(payload, what=self.name, limit=limit)
        return self._payload.accept(payload, limit)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Where in its payload something is annotated as secret, as dotted paths."""
        return () if self._payload is None else self._payload.secrets

    def call_with(self, stored: Any, context: TaskContext | HasContext) -> Call:
        """The payload, as its type where one is known, and what the worker fills in."""
        payload = stored if self._payload is None else self._payload.read(stored)
        if self._taker is not None and not self._filled and self._taker.kind is not _KEYWORD_ONLY:
            return (payload,), {}
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for each in self.parameters:
            if each is not self._taker and each not in self._filled:
                continue
            value = payload if each is self._taker else fill(each, context)
            if each.kind in _BY_POSITION:
                args.append(value)
            else:
                kwargs[each.name] = value
        return tuple(args), kwargs

    def prepare(self) -> None:
        """Compile the payload type now instead of at first use."""
        if self._payload is not None:
            self._payload.compile()

    def _read_parameters(self) -> tuple[Parameter, ...]:
        try:
            return super()._read_parameters()
        except TaskDefinitionError:
            if isinstance(underlying(self.function), FunctionType):
                raise
            # A built-in without a signature is called with the payload.
            return (Parameter("payload", _POSITIONAL_ONLY, True, Any),)

    def _payload_validation(self, declared: Any) -> Validation | None:
        taker = self._taker
        if declared is not None:
            return Validation(self.name, lambda: declared)
        if taker is None or taker.kind is _VAR_POSITIONAL or taker.annotation in _ANY_PAYLOAD:
            return None
        return Validation(self.name, lambda: resolve_again(self.function, taker, self.name))


def secrets_of(definition: Definition | None) -> tuple[str, ...]:
    """What the definition marks as secret, as paths; nothing without a definition, or if its types cannot be read."""
    try:
        return () if definition is None else definition.secrets
    except TaskDefinitionError:
        return ()


def _refuse_positional(parameter: Parameter, task: str, hidden: Sequence[tuple[str, str]]) -> None:
    if parameter.kind is _POSITIONAL_ONLY:
        raise TaskDefinitionError(
            f"task {task!r}: parameter {parameter.name!r} is positional-only, but arguments are stored "
            "by name; remove the / after it"
        )
    if parameter.kind is _VAR_POSITIONAL:
        remedy = f"take a list instead: {parameter.name}: list[...]"
        if hidden:
            remedy = f"if it wraps {hidden[0][1]}, {REMEDY}"
        raise TaskDefinitionError(
            f"task {task!r}: arguments are stored by name, which *{parameter.name} has not; {remedy}"
        )


def _refuse_async_context(parameters: Sequence[Parameter], task: str) -> None:
    for each in parameters:
        if each.annotation is AsyncTaskContext:
            raise TaskDefinitionError(
                f"task {task!r}: parameter {each.name!r} is annotated AsyncTaskContext, but the function is no "
                "`async def` and could not await it; annotate it TaskContext"
            )


def _payload_taker(parameters: Sequence[Parameter], name: str) -> Parameter | None:
    """The parameter that gets the payload: the first one the worker does not fill in otherwise."""
    takers = [each for each in parameters if each.role is Role.ARGUMENT]
    needed = [each for each in takers[1:] if each.required]
    if needed:
        raise TaskDefinitionError(
            f"handler of {name!r}: it is called with the payload alone, but also requires "
            f"{needed[0].name!r}; give that a default, or define a task with named arguments by @task"
        )
    extra = [each for each in parameters if each.role is Role.EXTRA]
    if extra and len(extra) == len(parameters):
        raise TaskDefinitionError(
            f"handler of {name!r}: it is called with the payload as one value, which **{extra[0].name} does not take; "
            f"write {extra[0].name} without the stars, or define a task with named arguments by @task"
        )
    return takers[0] if takers else None


def fill(parameter: Parameter, attempt: TaskContext | HasContext) -> Any:
    """What the worker fills in for a parameter."""
    context = attempt if isinstance(attempt, TaskContext) else attempt.context
    match parameter.role:
        case Role.CONTEXT:
            return context
        case Role.TASK:
            return context.task
        case _:
            return getattr(context.state, parameter.resource)


_INJECTED = (Role.CONTEXT, Role.TASK, Role.RESOURCE)
_POSITIONAL_ONLY = inspect.Parameter.POSITIONAL_ONLY
_VAR_POSITIONAL = inspect.Parameter.VAR_POSITIONAL
_KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
_BY_POSITION = (_POSITIONAL_ONLY, _VAR_POSITIONAL)
_ANY_PAYLOAD = (Any, object, dict, Mapping, dict[str, Any], Mapping[str, Any])
