"""Integrations load their library when they are first used: importing one of them needs nothing but tasklib."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from tasklib.errors import ConfigurationError


def load(module: str, install: str, *, of: str | None = None) -> ModuleType:
    """The module, which is `of` a library or needs it; where that is missing, the error says what to install."""
    library = of or module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != library:
            raise
        raise ConfigurationError(f"{error.name} is needed, and not installed: pip install '{install}'") from error


def public_names(
    package: str, homes: Mapping[str, str], library: str, install: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of an integration whose classes have bases of the library.

    Each class has a module of its own for its home.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(load(f"{package}.{homes[name]}", install, of=library), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return find, names
