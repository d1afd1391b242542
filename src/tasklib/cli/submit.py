"""Submitting tasks, one or a whole file of them: submit."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasklib.cli import parse
from tasklib.cli.command import Cli, command
from tasklib.cli.exits import CommandFailed, Exit
from tasklib.cli.options import one_of

if TYPE_CHECKING:
    from tasklib.task import Task, TaskId

GROUP = "Tasks"
OPTIONS = "How it shall run"
FILE = "Many tasks from a file"

app = typer.Typer()


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
            return parse.pairs(self.arguments or [], "argument")
        if self.arguments:
            raise CommandFailed("give the arguments either as key=value or by --payload, not both", Exit.USAGE)
        if self.payload == "-":
            return parse.json_value(sys.stdin.read(), "the payload on stdin")
        if self.payload.startswith("@"):
            return _read_json(self.payload[1:])
        return parse.json_value(self.payload, "the payload")


@dataclass(frozen=True, slots=True)
class How:
    """How it shall run; what is not given is left to the task's definition and the settings."""

    priority: Annotated[int | None, typer.Option(metavar="N", help="Higher runs first.", rich_help_panel=OPTIONS)] = (
        None
    )
    delay: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Not before so much time: 90s, 15m, 2h, 1d.", rich_help_panel=OPTIONS),
    ] = None
    run_at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Not before 2030-01-31T09:00 (local) or …Z.", rich_help_panel=OPTIONS),
    ] = None
    max_attempts: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Attempts in all.  [default: 3]", rich_help_panel=OPTIONS, show_default=False
        ),
    ] = None
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long an attempt may take.", rich_help_panel=OPTIONS)
    ] = None
    unique_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="At most one unfinished task of the name has it.", rich_help_panel=OPTIONS),
    ] = None
    on_conflict: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="If the key is taken: return that task, replace it, or raise.  [default: return]",
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
            help="To find it by; may be repeated.",
            rich_help_panel=OPTIONS,
            show_default=False,
        ),
    ] = None

    def options(self) -> dict[str, Any]:
        """Those that were given, as `enqueue` takes them."""
        options = {
            "priority": self.priority,
            "delay_seconds": None if self.delay is None else parse.duration(self.delay),
            "run_at": None if self.run_at is None else parse.moment(self.run_at),
            "max_attempts": self.max_attempts,
            "timeout_seconds": None if self.timeout is None else parse.duration(self.timeout).total_seconds(),
            "unique_key": self.unique_key,
            "on_conflict": self.on_conflict,
            "tags": parse.pairs(self.tag or (), "tag") or None,
        }
        return {key: value for key, value in options.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Waiting:
    """Whether to wait for its end."""

    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait for its end and show it; exit 1 if it did not complete.")
    ] = False
    wait_timeout: Annotated[str | None, typer.Option(metavar="TIME", help="Wait no longer; exit 5.")] = None


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
            help="jsonl or csv, where the name does not tell.",
            rich_help_panel=FILE,
            autocompletion=one_of("jsonl", "csv"),
        ),
    ] = None
    from_line: Annotated[
        int, typer.Option(min=1, metavar="N", help="Leave out the lines before.", rich_help_panel=FILE)
    ] = 1
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check every line and store nothing.", rich_help_panel=FILE)
    ] = False


@command(
    app,
    "submit",
    group=GROUP,
    creates=True,
    examples="""
    tasklib submit send_email to=ada@example.com subject="Hello Ada" copies=2
    tasklib submit report --payload '{"month": "2030-01"}' --delay 1h --unique-key report-2030-01
    tasklib submit resize --payload @picture.json --wait
    tasklib submit send_email --file people.csv --priority 5 --tag batch=daily
    tasklib submit --file tasks.jsonl --dry-run
    """,
)
def submit(cli: Cli, what: What, how: How, waiting: Waiting, source: FromFile) -> None:
    """Store a task to be run by a worker, or many from a file.

    A file in JSON Lines has one task per line: {"name": …, "payload": {…}, "priority": …} and the like, or the payload
    alone if NAME is given. The first line of a CSV file names the arguments; an empty cell leaves its argument out.
    Lines are stored 2,000 at a time; if any of them is wrong, none of those is stored and the command stops.
    """
    if what.name is not None and "=" in what.name:
        raise CommandFailed(f"the task's name comes first, as in: tasklib submit NAME {what.name}", Exit.USAGE)
    options = how.options()
    if what.app_module is not None:
        _use_tasks_of(cli, what.app_module)
    if source.file is None:
        _submit_one(cli, what, options, waiting, dry_run=source.dry_run)
    else:
        _submit_file(cli, source.file, source, what, options, waiting)


def _use_tasks_of(cli: Cli, module: str) -> None:
    from tasklib.cli.discovery import find_queue
    from tasklib.manage import Manage

    cli.manage = Manage(find_queue([module], cli.given_url, cli.url))


def _submit_one(cli: Cli, what: What, options: dict[str, Any], waiting: Waiting, *, dry_run: bool) -> None:
    if what.name is None:
        raise CommandFailed(
            "which task? Give its name, as in: tasklib submit send_email to=ada@example.com", Exit.USAGE
        )
    if dry_run:
        raise CommandFailed("--dry-run goes with --file", Exit.USAGE)
    task_id = cli.manage.queue.enqueue(what.name, what.read_payload(), **options)
    if waiting.wait or waiting.wait_timeout is not None:
        _wait(cli, what.name, task_id, waiting.wait_timeout)
    else:
        _say_submitted(cli, what.name, task_id)


def _submit_file(cli: Cli, file: str, source: FromFile, what: What, options: dict[str, Any], waiting: Waiting) -> None:
    from tasklib.cli.bulk import submit_file

    if what.arguments or what.payload is not None or waiting.wait:
        raise CommandFailed("--file does not go with arguments, --payload or --wait", Exit.USAGE)
    kind, first = source.file_format, source.from_line
    submit_file(cli, file, name=what.name, options=options, kind=kind, from_line=first, dry_run=source.dry_run)


def _read_json(file: str) -> Any:
    try:
        return parse.json_value(Path(file).read_text("utf-8"), file)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"cannot read {file}: {error}", Exit.USAGE) from error


def _say_submitted(cli: Cli, name: str, task_id: TaskId) -> None:
    def say() -> None:
        if task_id.created:
            cli.out.line(f"Submitted {name} {task_id}")
        else:
            cli.out.line(f"{name} {task_id} has that unique key and is not finished; no new task was stored")
        if cli.out.is_terminal:
            cli.out.line(f"See what becomes of it: tasklib show {task_id}", "dim")

    cli.out.answer({"id": task_id, "name": name, "created": task_id.created}, say)


def _wait(cli: Cli, name: str, task_id: TaskId, timeout: str | None) -> None:
    from tasklib.cli.views import show_task

    seconds = None if timeout is None else parse.duration(timeout).total_seconds()
    if sys.stderr.isatty():
        cli.out.note(f"waiting for {name} {task_id}; Ctrl-C stops waiting, not the task")
    task: Task = cli.manage.redactor.task(cli.manage.queue.wait(task_id, seconds))
    data = {"id": task_id, "name": name, "created": task_id.created, "task": task}
    cli.out.answer(data, lambda: show_task(cli.out, task))
    if task.state != "completed":
        raise CommandFailed(f"{name} {task_id} ended as {task.state}")
