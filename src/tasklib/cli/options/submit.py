"""Options of `tasklib submit`: the task, how to run it, whether to wait for it, and a file of many tasks."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.options import values
from tasklib.cli.options.declare import argument, option

OPTIONS = "How to run it"
FILE = "Many tasks from a file"


@dataclass(frozen=True, slots=True)
class TaskToSubmit:
    """The task itself."""

    name: Annotated[str | None, argument("NAME", "The task's name; a file can hold the names itself.")] = None
    arguments: Annotated[
        list[str] | None,
        argument(
            "KEY=VALUE", "Its arguments. A value is read as JSON where it is JSON (5, true, '\"5\"'), else as text."
        ),
    ] = None
    payload: Annotated[
        str | None, option("JSON", "Its arguments as JSON; @file or - for stdin.", "--payload", "-p")
    ] = None
    app_module: Annotated[
        str | None,
        option("MODULE", "Where the task is defined: checks the arguments and applies its options.", "--app"),
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
class RunOptions:
    """How to run it; without an option, the task's definition and the settings decide."""

    priority: Annotated[int | None, option("N", "Higher runs first.", panel=OPTIONS)] = None
    delay: Annotated[str | None, option("TIME", "Earliest start from now: 90s, 15m, 2h, 1d.", panel=OPTIONS)] = None
    run_at: Annotated[str | None, option("TIME", "Earliest start: 2030-01-31T09:00 (local) or …Z.", panel=OPTIONS)] = (
        None
    )
    max_attempts: Annotated[
        int | None,
        option(
            "N",
            "Attempts in all.  [default: 3, as for every task submitted by name and over HTTP; "
            "what the task declares, with --app; from Python, task.submit(): 4, three retries after the first]",
            panel=OPTIONS,
            min=1,
        ),
    ] = None
    task_timeout: Annotated[str | None, option("TIME", "How long an attempt may take.", panel=OPTIONS)] = None
    timeout: Annotated[str | None, option("TIME", "", hidden=True)] = None
    unique_key: Annotated[
        str | None, option("KEY", "At most one unfinished task of this name may have it.", panel=OPTIONS)
    ] = None
    on_conflict: Annotated[
        str | None,
        option(
            "WHAT",
            "If the key is in use: return that task, replace it, or raise.  [default: return]",
            panel=OPTIONS,
            words=("return", "replace", "raise"),
        ),
    ] = None
    tag: Annotated[
        list[str] | None, option("KEY=VALUE", "A tag to find it by; may be repeated.", "--tag", "-t", panel=OPTIONS)
    ] = None

    def options(self, *, waits: bool) -> dict[str, Any]:
        """The options that were given, as `enqueue` takes them."""
        timeout = self._timeout(waits=waits)
        if self.delay is not None and self.run_at is not None:
            raise CommandFailed("give either --delay or --run-at, not both", Exit.USAGE)
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
        """How long an attempt may take; --timeout means the same where it cannot mean how long to wait."""
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
class WaitOptions:
    """Whether to wait until it ends."""

    wait: Annotated[
        bool, option(None, "Wait until it ends and show it; exit 1 if it did not complete.", "--wait", "-w")
    ] = False
    wait_timeout: Annotated[
        str | None, option("TIME", "Wait at most this long, then exit 5. The task keeps running.")
    ] = None

    @property
    def waits(self) -> bool:
        """Whether either option asks for that."""
        return self.wait or self.wait_timeout is not None


@dataclass(frozen=True, slots=True)
class FromFile:
    """A file with many tasks."""

    file: Annotated[
        str | None,
        option("FILE", "One task per line of .jsonl, or per row of .csv; - for stdin.", "--file", "-f", panel=FILE),
    ] = None
    file_format: Annotated[
        str | None,
        option(
            "FORMAT", "jsonl or csv, if the file name does not say.", "--format", panel=FILE, words=("jsonl", "csv")
        ),
    ] = None
    from_line: Annotated[int, option("N", "First line to submit.", panel=FILE, min=1, show_default=True)] = 1
    dry_run: Annotated[bool, option(None, "Check every line and store nothing.", "--dry-run", panel=FILE)] = False


def _read_json(file: str) -> Any:
    try:
        return values.json_value(Path(file).read_text("utf-8"), file)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"cannot read {file}: {error}", Exit.USAGE) from error
