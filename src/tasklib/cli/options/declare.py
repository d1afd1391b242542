"""Declaring options and arguments of commands: what each takes and what it is for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer


def option(
    metavar: str | None,
    help: str,
    *names: str,
    panel: str | None = None,
    words: Sequence[str] = (),
    show_default: bool = False,
    **more: Any,
) -> Any:
    """An option; `words` are what the shell completes its value to, `panel` is its heading on the help page."""
    completion = _completing(words) if words else None
    return typer.Option(
        *names,
        metavar=metavar,
        help=help,
        rich_help_panel=panel,
        show_default=show_default,
        autocompletion=completion,
        **more,
    )


def argument(metavar: str, help: str, *, words: Sequence[str] = (), **more: Any) -> Any:
    """An argument, given by its position."""
    completion = _completing(words) if words else None
    return typer.Argument(metavar=metavar, help=help, show_default=False, autocompletion=completion, **more)


def _completing(words: Sequence[str]) -> Any:
    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete
