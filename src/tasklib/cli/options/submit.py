"""What `tasklib submit` is told: the task, how it shall run, whether to wait, and a file of many."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.options import values
from tasklib.cli.options.common import one_of

OPTIONS = "How it shall run"
FILE = "Many tasks from a file"


@dataclass(frozen=True, slots=True)
class What:
    """The task itself."""

    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The task's name; a file can hold the names itself.", show_default=False),
    ] = None
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Its arguments. A value is read as JSON where it is JSON (5, true, '\"5\"'), else as text.",
            show_default=False,
        ),
    ] = None
    payload: Annotated[
        str | None, typer.Option("--payload", "-p", metavar="JSON", help="Its arguments as JSON; @file or - for stdin.")
    ] = None
    app_module: Annotated[
        str | None,
        typer.Option(
            "--app", metavar="MODULE", help="Where the task is defined: checks the arguments and applies its options."
        ),
    ] = None

    def read_payload(self) -> Any:
        """The arguments, however they were given."""
        if self.payload is None:
            return values.pairs(self.arguments or [], "argument")
        if self.arguments:
            raise CommandFailed("give the arguments either as key=value or by --payload, not both", Exit.USAGE)
        if self.payload == "-":
            return values.json_value(sys.stdin.read(), "the payload on stdin")
        if self.payload.startswith("@"):
            return _read_json(self.payload[1:])
        return values.json_value(self.payload, "the payload")


@dataclass(frozen=True, slots=True)
class How:
    """How it shall run; what is not given is left to the task's definition and the settings."""

    priority: Annotated[int | None, typer.Option(metavar="N", help="Higher runs first.", rich_help_panel=OPTIONS)] = (
        None
    )
    delay: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Earliest start from now: 90s, 15m, 2h, 1d.", rich_help_panel=OPTIONS),
    ] = None
    run_at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Earliest start: 2030-01-31T09:00 (local) or …Z.", rich_help_panel=OPTIONS),
    ] = None
    max_attempts: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Attempts in all.  [default: 3, as for every task submitted by name and over HTTP; "
            "what the task declares, with --app; from Python, task.submit(): 4, three retries after the first]",
            rich_help_panel=OPTIONS,
            show_default=False,
        ),
    ] = None
    task_timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long an attempt may take.", rich_help_panel=OPTIONS)
    ] = None
    timeout: Annotated[str | None, typer.Option(metavar="TIME", hidden=True)] = None
    unique_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="At most one unfinished task of the name has it.", rich_help_panel=OPTIONS),
    ] = None
    on_conflict: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="If the key is in use: return that task, replace it, or raise.  [default: return]",
            rich_help_panel=OPTIONS,
            show_default=False,
            autocompletion=one_of("return", "replace", "raise"),
        ),
    ] = None
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag",
            "-t",
            metavar="KEY=VALUE",
            help="A tag to find it by; may be repeated.",
            rich_help_panel=OPTIONS,
            show_default=False,
        ),
    ] = None

    def options(self, *, waits: bool) -> dict[str, Any]:
        """Those that were given, as `enqueue` takes them."""
        timeout = self._timeout(waits=waits)
        options = {
            "priority": self.priority,
            "delay_seconds": None if self.delay is None else values.duration(self.delay),
            "run_at": None if self.run_at is None else values.moment(self.run_at),
            "max_attempts": self.max_attempts,
            "timeout_seconds": None if timeout is None else values.duration(timeout).total_seconds(),
            "unique_key": self.unique_key,
            "on_conflict": self.on_conflict,
            "tags": values.pairs(self.tag or (), "tag") or None,
        }
        return {key: value for key, value in options.items() if value is not None}

    def _timeout(self, *, waits: bool) -> str | None:
        """How long an attempt may take; --timeout says it too, where it cannot be taken for the time to wait."""
        if self.timeout is None:
            return self.task_timeout
        if waits or self.task_timeout is not None:
            raise CommandFailed(
                "--timeout could mean two things here: write --task-timeout for how long an attempt may take, "
                "or --wait-timeout for how long this command waits",
                Exit.USAGE,
            )
        return self.timeout


@dataclass(frozen=True, slots=True)
class Waiting:
    """Whether to wait for its end."""

    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait until it ends and show it; exit 1 if it did not complete.")
    ] = False
    wait_timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Wait at most this long, then exit 5. The task keeps running.")
    ] = None

    @property
    def waits(self) -> bool:
        """Whether it was asked for, by either option."""
        return self.wait or self.wait_timeout is not None


@dataclass(frozen=True, slots=True)
class FromFile:
    """A file with many tasks."""

    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="One task per line of .jsonl, or per row of .csv; - for stdin.",
            rich_help_panel=FILE,
        ),
    ] = None
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="jsonl or csv, if the file name does not say.",
            rich_help_panel=FILE,
            autocompletion=one_of("jsonl", "csv"),
        ),
    ] = None
    from_line: Annotated[int, typer.Option(min=1, metavar="N", help="First line to submit.", rich_help_panel=FILE)] = 1
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check every line and store nothing.", rich_help_panel=FILE)
    ] = False


def _read_json(file: str) -> Any:
    try:
        return values.json_value(Path(file).read_text("utf-8"), file)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"cannot read {file}: {error}", Exit.USAGE) from error
