"""Signatures that name every option, for `help()` and editors; and errors that show how a call is to be written."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, Final, TypeVar

from tasklib.core.texts.suggestion import did_you_mean
from tasklib.errors import ConfigurationError

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C")

EXAMPLES: Final[Mapping[str, str]] = {"run": ", with the task's own arguments in its bind: ctx.run(task.bind(1))"}
"""What the parameters of a context's method do not show."""


def shows_options(options: type) -> Callable[[F], F]:
    """Let the signature of a function show the fields of a dataclass, with their defaults, in place of `**options`."""
    shown = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=each.default if each.default_factory is MISSING else each.default_factory(),
            annotation=each.type,
        )
        for each in fields(options)
    ]

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        added = [each for each in shown if each.name not in signature.parameters]
        function.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        return function

    return decorate


def explains_wrong_calls(context: type[C]) -> type[C]:
    """Let a call that does not fit the parameters of the class's method raise an error that shows how to call it."""
    for name, method in list(vars(context).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(context, name, _explained(method))
    return context


def _explained(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(context: Any, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(context, *args, **kwargs)
        except TypeError:
            _require_fit(method, context, args, kwargs)
            raise

    return call


def _require_fit(method: Callable[..., Any], context: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    signature = inspect.signature(method)
    try:
        signature.bind(context, *args, **kwargs)
    except TypeError as error:
        parameters = list(signature.parameters.values())[1:]
        names = [each.name for each in parameters]
        hints = [did_you_mean(name, names, written="{}=") for name in kwargs if name not in names]
        meant = "".join(f"; {hint}" for hint in hints if hint)
        plain = [each.replace(annotation=inspect.Parameter.empty) for each in parameters]
        usage = f"ctx.{method.__name__}{inspect.Signature(plain)}"
        example = EXAMPLES.get(method.__name__, "")
        raise ConfigurationError(f"ctx.{method.__name__}: {error}{meant}; call it as {usage}{example}") from None
