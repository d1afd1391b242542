"""Signatures that name every option: what `help()` and editors show of a function that takes them as keywords."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


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
