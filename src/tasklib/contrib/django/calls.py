"""A Django task as a task of a queue: its name there, its arguments as stored, and the call that a worker makes.

Arguments are JSON, as the framework has it, and stored by name where the function has names for them: that is what
people see in lists, and what other programs may write.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tasklib.contrib.django.framework import normalize_json
from tasklib.core.calls.context import TaskContext
from tasklib.core.calls.current import HasContext
from tasklib.core.codec import plain, shown
from tasklib.definition import Definition, TaskOptions
from tasklib.definition.parameters import Parameter
from tasklib.definition.tasks import Call
from tasklib.errors import InvalidArguments, ResultError

DEFAULT_QUEUE = "default"
POSITIONAL_HEADER = "django.args"
"""How many arguments were given by position; the others were given by name."""


class TaskName(NamedTuple):
    """The queue and the function of a task; one text in the table."""

    queue: str
    path: str

    @classmethod
    def parse(cls, name: str) -> TaskName:
        """From the text: `emails:shop.tasks.send`, without a queue for the default one."""
        queue, _, path = name.rpartition(":")
        return cls(queue or DEFAULT_QUEUE, path)

    def __str__(self) -> str:
        return self.path if self.queue == DEFAULT_QUEUE else f"{self.queue}:{self.path}"


class Arguments(NamedTuple):
    """The arguments of a call as they are stored."""

    payload: dict[str, Any]
    positional: int


class CallSignature:
    """The parameters of a task's function that its callers give."""

    def __init__(self, function: Callable[..., Any], *, takes_context: bool) -> None:
        signature = inspect.signature(function)
        if takes_context:
            signature = signature.replace(parameters=list(signature.parameters.values())[1:])
        self._signature = signature

    def bind(self, path: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        """The arguments by name; TypeError for a call that the function would not take."""
        try:
            given = self._signature.bind(*normalize_json(list(args)), **normalize_json(dict(kwargs))).arguments
            payload: dict[str, Any] = {}
            for name, value in given.items():
                self._add(payload, self._signature.parameters[name], value)
        except TypeError as error:
            raise TypeError(f"{path}: {error}; nothing was enqueued") from error
        return Arguments(payload, len(args))

    def call(self, payload: Mapping[str, Any]) -> Call:
        """What to call the function with; TypeError if it does not take these arguments (any more)."""
        args, kwargs = list[Any](), dict(payload)
        parameters = self._signature.parameters.values()
        spread = any(each.kind is each.VAR_POSITIONAL and f"*{each.name}" in kwargs for each in parameters)
        for each in parameters:
            if each.kind is each.VAR_POSITIONAL:
                args.extend(kwargs.pop(f"*{each.name}", ()))
            elif (each.kind is each.POSITIONAL_ONLY or (spread and _is_positional(each))) and each.name in kwargs:
                args.append(kwargs.pop(each.name))
        self._signature.bind(*args, **kwargs)
        return tuple(args), kwargs

    def as_given(self, payload: Any, positional: int) -> tuple[list[Any], dict[str, Any]]:
        """The arguments as the caller gave them, by position and by name."""
        if not isinstance(payload, dict):
            return [payload], {}
        rest: dict[str, Any] = dict(payload)
        args: list[Any] = []
        for each in self._signature.parameters.values():
            if len(args) >= positional:
                break
            if each.kind is each.VAR_POSITIONAL:
                args.extend(rest.pop(f"*{each.name}", ()))
            elif _is_positional(each) and each.name in rest:
                args.append(rest.pop(each.name))
        return args, rest

    @staticmethod
    def _add(payload: dict[str, Any], parameter: inspect.Parameter, value: Any) -> None:
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                payload[f"*{parameter.name}"] = list(value)
            case inspect.Parameter.VAR_KEYWORD:
                if twice := value.keys() & payload.keys():
                    raise TypeError(f"{', '.join(sorted(twice))} is given by position and by name, and stored once")
                payload.update(value)
            case _:
                payload[parameter.name] = value


class DjangoDefinition(Definition):
    """A function with `@task` of Django's framework, as a worker calls it."""

    __slots__ = ("_make_context", "_signature", "_takes_context")

    def __init__(
        self, task: Any, name: TaskName, options: TaskOptions, make_context: Callable[[TaskContext], Any]
    ) -> None:
        self._signature = signature_of(task)
        self._takes_context: bool = task.takes_context
        self._make_context = make_context
        super().__init__(storing(task.func), str(name), options)
        self.accepts = "arguments"

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, limit: int | None = None) -> Any:
        """The arguments of a call by name."""
        return plain(self._signature.bind(self.name, args, kwargs).payload, what=self.name, limit=limit)

    def bind_payload(self, payload: Any, *, limit: int | None = None) -> Any:
        """A payload that another program sends: an object of named arguments."""
        if not isinstance(payload, Mapping):
            problem = f"its input must be an object of named arguments, got {shown(payload)}"
            raise InvalidArguments(self.name, [problem])
        try:
            self._signature.call(payload)
        except TypeError as error:
            raise InvalidArguments(self.name, [str(error)]) from error
        return plain(dict(payload), what=self.name, limit=limit)

    def call_with(self, stored: Any, context: TaskContext | HasContext) -> Call:
        """The stored arguments, after the framework's context where the function takes it."""
        try:
            args, kwargs = self._signature.call(stored if isinstance(stored, dict) else {})
        except TypeError as error:
            raise InvalidArguments(self.name, [str(error)], stored=True) from error
        if self._takes_context:
            running = context if isinstance(context, TaskContext) else context.context
            args = (self._make_context(running), *args)
        return args, kwargs

    def prepare(self) -> None:
        """Nothing is compiled."""

    def _read_parameters(self) -> tuple[Parameter, ...]:
        return ()


def signature_of(task: Any) -> CallSignature:
    """The parameters of a Django task that its callers give."""
    return _signature(task.func, task.takes_context)


@functools.lru_cache(maxsize=10_000)
def _signature(function: Callable[..., Any], takes_context: bool) -> CallSignature:
    return CallSignature(function, takes_context=takes_context)


def storing(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with its result made JSON as the framework does; one that cannot be is a final failure."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def acall(*args: Any, **kwargs: Any) -> Any:
            return _stored(await function(*args, **kwargs))

        return acall

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _stored(function(*args, **kwargs))

    return call


def _stored(result: Any) -> Any:
    try:
        return normalize_json(result)
    except (TypeError, ValueError) as error:
        raise ResultError(
            f"the result cannot be stored as JSON: {error}; return numbers, texts, lists, dicts"
        ) from error


def _is_positional(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
