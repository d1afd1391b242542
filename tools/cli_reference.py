"""Writes `docs/reference/cli.md` from the commands themselves, so that it says what the program does.

Usage: python -m tools.cli_reference [--check]
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

import typer.main

from tasklib.cli.command import DEFAULT_URL, URL_VARIABLES
from tasklib.cli.exit_codes import MEANINGS
from tasklib.cli.help import EVERYWHERE
from tasklib.cli.main import app
from tools.problems import ROOT, Problem, report

PAGE = ROOT / "docs/reference/cli.md"
INTRODUCTION = f"""\
# Command line

<!-- Written by `make snapshot` from the commands themselves; edit those. -->

`tasklib` works on the database in `--database-url` (also `--dsn`),
else in {" or ".join(f"`{v}`" for v in URL_VARIABLES)},
else on `{DEFAULT_URL}`. Every command takes `--json` for [one JSON document](json.md) instead of text, and `--help`.
Colours and progress bars are for terminals only; `NO_COLOR` turns colours off. `--install-completion` installs
completion of commands, options and values for your shell. An id may be shortened to any part that only one task has:
its beginning, its end, or both as tables print it on a terminal, `0199f1e2..9a3c1f`.

## Exit codes

| code | meaning |
|---|---|
"""


def main(arguments: list[str]) -> None:
    text = page()
    if "--check" in arguments:
        stale = not PAGE.exists() or PAGE.read_text() != text
        problems = [Problem(PAGE, 1, "is not what the commands say")] if stale else []
        report(problems, "run `make snapshot` and commit the result with the change of the command.")
    else:
        PAGE.write_text(text)


def page() -> str:
    """The whole page."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    lines = [f"| {int(code)} | {meaning} |" for code, meaning in MEANINGS.items()]
    for group in dict.fromkeys(command.rich_help_panel for command in commands.values()):
        lines += ["", f"## {group}"]
        for command in commands.values():
            if command.rich_help_panel == group:
                lines += section(command)
    return INTRODUCTION + "\n".join(lines) + "\n"


def section(command: Any) -> Iterator[str]:
    """One command: what it does, what it takes, how it is used."""
    yield from ("", f"### `tasklib {command.name}`", "", inspect.cleandoc(command.help))
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    rows = [row(each) for each in shown if getattr(each, "rich_help_panel", None) != EVERYWHERE]
    if rows:
        yield from ("", "| | |", "|---|---|", *rows)
    yield from ("", "```bash", *(line.strip() for line in command.epilog.splitlines()), "```")


def row(parameter: Any) -> str:
    """One argument or option of a command."""
    if parameter.param_type_name == "argument":
        names = f"`{parameter.metavar or parameter.name}`"
    else:
        value = f" {parameter.metavar}" if parameter.metavar else "" if parameter.is_flag else " N"
        names = ", ".join(f"`{option}{value}`" for option in sorted(parameter.opts, key=len, reverse=True))
    meaning = re.sub(r"\s{2,}\[", " [", parameter.help or "")
    shown = parameter.show_default and not parameter.required and parameter.default not in (None, False)
    default = f" [default: {parameter.default}]" if shown else ""
    cells = [each.replace("\n", " ").replace("|", "\\|") for each in (names, meaning + default)]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main(sys.argv[1:])
