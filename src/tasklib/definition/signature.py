"""Signatures that name every option: what `help()` and editors show of a function that takes them as keywords."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def shows_options(options: type) -> Callable[[F], F]:
    """Let the signature of a function show the fields of a dataclass, with their defaults, in place of `**options`."""

    def decorate(function: F) -> F:
        shown = inspect.signature(function)
        kept = [each for each in shown.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        taken = {each.name for each in kept}
        added = [each for each in option_parameters(options) if each.name not in taken]
        function.__signature__ = shown.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
        return function

    return decorate


def option_parameters(options: type) -> list[inspect.Parameter]:
    """The fields of a dataclass as keyword parameters."""
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=each.default if each.default_factory is MISSING else each.default_factory(),
            annotation=each.type,
        )
        for each in fields(options)
    ]
