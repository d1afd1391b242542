"""Submitting tasks, one or a whole file of them: submit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasklib.cli import parse
from tasklib.cli.command import Cli, command
from tasklib.cli.exits import CommandFailed, Exit

if TYPE_CHECKING:
    from tasklib.task import Task, TaskId

GROUP = "Tasks"
OPTIONS = "How it shall run"
FILE = "Many tasks from a file"

app = typer.Typer()


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
def submit(
    cli: Cli,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The task's name; a file can hold the names itself.", show_default=False),
    ] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Its arguments. A value is read as JSON where it is JSON (5, true, '\"5\"'), else as text.",
            show_default=False,
        ),
    ] = None,
    payload: Annotated[
        str | None, typer.Option("--payload", "-p", metavar="JSON", help="Its arguments as JSON; @file or - for stdin.")
    ] = None,
    priority: Annotated[int | None, typer.Option(help="Higher runs first.", rich_help_panel=OPTIONS)] = None,
    delay: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Not before so much time: 90s, 15m, 2h, 1d.", rich_help_panel=OPTIONS),
    ] = None,
    run_at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Not before 2030-01-31T09:00 (local) or …Z.", rich_help_panel=OPTIONS),
    ] = None,
    max_attempts: Annotated[
        int | None,
        typer.Option(min=1, help="Attempts in all.  [default: 3]", rich_help_panel=OPTIONS, show_default=False),
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long an attempt may take.", rich_help_panel=OPTIONS)
    ] = None,
    unique_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="At most one unfinished task of the name has it.", rich_help_panel=OPTIONS),
    ] = None,
    on_conflict: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="If the key is taken: return that task, replace it, or raise.  [default: return]",
            rich_help_panel=OPTIONS,
            show_default=False,
        ),
    ] = None,
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
    ] = None,
    app_module: Annotated[
        str | None,
        typer.Option(
            "--app", metavar="MODULE", help="Where the task is defined: checks the arguments and applies its options."
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait for its end and show it; exit 1 if it did not complete.")
    ] = False,
    wait_timeout: Annotated[str | None, typer.Option(metavar="TIME", help="Wait no longer; exit 5.")] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="One task per line of .jsonl, or per row of .csv; - for stdin.",
            rich_help_panel=FILE,
        ),
    ] = None,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FORMAT", help="jsonl or csv, where the name does not tell.", rich_help_panel=FILE
        ),
    ] = None,
    from_line: Annotated[
        int, typer.Option(min=1, metavar="N", help="Leave out the lines before.", rich_help_panel=FILE)
    ] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check every line and store nothing.", rich_help_panel=FILE)
    ] = False,
) -> None:
    """Store a task to be run by a worker, or many from a file.

    A file in JSON Lines has one task per line: {"name": …, "payload": {…}, "priority": …} and the like, or the payload
    alone if NAME is given. The first line of a CSV file names the arguments; an empty cell leaves its argument out.
    Lines are stored 2,000 at a time; if any of them is wrong, none of those is stored and the command stops.
    """
    options = {
        "priority": priority,
        "delay_seconds": None if delay is None else parse.duration(delay),
        "run_at": None if run_at is None else parse.moment(run_at),
        "max_attempts": max_attempts,
        "timeout_seconds": None if timeout is None else parse.duration(timeout).total_seconds(),
        "unique_key": unique_key,
        "on_conflict": on_conflict,
        "tags": parse.pairs(tag or (), "tag") or None,
    }
    if name is not None and "=" in name:
        raise CommandFailed(f"the task's name comes first, as in: tasklib submit NAME {name}", Exit.USAGE)
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    if app_module is not None:
        _use_tasks_of(cli, app_module)
    if file is not None:
        if arguments or payload is not None or wait:
            raise CommandFailed("--file does not go with arguments, --payload or --wait", Exit.USAGE)
        from tasklib.cli.bulk import submit_file

        submit_file(cli, file, name=name, options=given, kind=file_format, from_line=from_line, dry_run=dry_run)
        return
    if name is None:
        raise CommandFailed(
            "which task? Give its name, as in: tasklib submit send_email to=ada@example.com", Exit.USAGE
        )
    if dry_run:
        raise CommandFailed("--dry-run goes with --file", Exit.USAGE)
    task_id = cli.manage.queue.enqueue(name, _payload(payload, arguments or []), **given)
    if wait or wait_timeout is not None:
        _wait(cli, name, task_id, wait_timeout)
    else:
        _say_submitted(cli, name, task_id)


def _payload(text: str | None, arguments: list[str]) -> Any:
    if text is None:
        return parse.pairs(arguments, "argument")
    if arguments:
        raise CommandFailed("give the arguments either as key=value or by --payload, not both", Exit.USAGE)
    if text == "-":
        return parse.json_value(sys.stdin.read(), "the payload on stdin")
    if text.startswith("@"):
        try:
            return parse.json_value(Path(text[1:]).read_text("utf-8"), text[1:])
        except (OSError, UnicodeDecodeError) as error:
            raise CommandFailed(f"cannot read {text[1:]}: {error}", Exit.USAGE) from error
    return parse.json_value(text, "the payload")


def _use_tasks_of(cli: Cli, module: str) -> None:
    from tasklib.cli.discovery import find_queue
    from tasklib.manage import Manage

    cli.manage = Manage(find_queue([module], cli.given_url, cli.url))


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
