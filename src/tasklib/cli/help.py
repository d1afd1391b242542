"""Help pages in plain text: commands in groups, an example for each, and the exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from tasklib.cli.exit_codes import MEANINGS

EVERYWHERE: Final = "Options of every command"


class HelpfulCommand(TyperCommand):
    """A command whose epilog is a list of examples, one per line."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, purpose, options and examples."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        _write_parameters(self, ctx, formatter)
        _write_lines(formatter, "Examples", (self.epilog or "").splitlines())


class HelpfulGroup(TyperGroup):
    """The command line itself: its commands by group, then its exit codes."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, purpose, commands, options and exit codes."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        commands = [self.get_command(ctx, name) for name in self.list_commands(ctx)]
        width = max(len(name) for name in self.list_commands(ctx))
        for panel in dict.fromkeys(_panel(command, "Commands") for command in commands):
            members = [c for c in commands if c is not None and _panel(c, "Commands") == panel]
            _write_rows(formatter, panel, [((c.name or "").ljust(width), c.get_short_help_str(120)) for c in members])
        _write_parameters(self, ctx, formatter)
        _write_rows(formatter, "Exit codes", [(str(int(code)), meaning) for code, meaning in MEANINGS.items()])
        _write_lines(formatter, "Examples", (self.epilog or "").splitlines())


def _write_parameters(command: Any, ctx: Any, formatter: Any) -> None:
    records: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            is_argument = parameter.param_type_name == "argument"
            # Typer adds the Python type to an argument's name, which helps nobody.
            name = parameter.metavar or parameter.name if is_argument else record[0]
            own = "Arguments" if is_argument else "Options"
            records.setdefault(_panel(parameter, own), []).append((name, record[1]))
    # A dictionary keeps the order of declaration, which puts --help and its like last.
    for panel, rows in records.items():
        _write_rows(formatter, panel, rows)


def _write_rows(formatter: Any, heading: str, rows: Iterable[tuple[str, str]]) -> None:
    with formatter.section(_bold(heading)):
        formatter.write_dl(list(rows))


def _write_lines(formatter: Any, heading: str, lines: Iterable[str]) -> None:
    """Lines without wrapping: a wrapped example cannot be copied."""
    shown = [line.strip() for line in lines if line.strip()]
    if shown:
        with formatter.section(_bold(heading)):
            for line in shown:
                formatter.write(f"  {line}\n")


def _panel(thing: Any, otherwise: str) -> str:
    return getattr(thing, "rich_help_panel", None) or otherwise


def _bold(text: str) -> str:
    return typer.style(text, bold=True) if colours_wanted(sys.stdout) else text


def colours_wanted(stream: Any) -> bool:
    """Whether colours may be sent there: only to a terminal, and not against NO_COLOR (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
