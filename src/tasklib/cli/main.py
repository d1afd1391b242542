"""The command line as a whole: its commands, and the exit code of every error."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer
from typer.main import get_command

from tasklib.cli import demo
from tasklib.cli.command import DatabaseUrl, GlobalOptions, Json
from tasklib.cli.commands import (
    actions,
    copy,
    database,
    errors,
    limits,
    objectives,
    queue,
    schedules,
    submit,
    tasks,
    token,
    workflows,
)
from tasklib.cli.commands.programs import bench, doctor, mcp, serve, worker
from tasklib.cli.exit_codes import Exit, code_for
from tasklib.cli.help import HelpfulGroup
from tasklib.cli.show.output import Output, one_line

app = typer.Typer(
    name="tasklib",
    cls=HelpfulGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},  # which every command takes over
    epilog="tasklib demo\ntasklib submit send_email to=ada@example.com\ntasklib worker app.tasks",
)
COMMAND_MODULES = (
    *(demo, worker, submit, tasks, workflows, actions, errors, queue, limits, objectives, doctor, schedules),
    *(serve, mcp, token, database, copy, bench),
)
for module in COMMAND_MODULES:
    app.registered_commands += module.app.registered_commands

# Typer has no name of its own for "the command was not understood".
UsageError: Any = typer.BadParameter.__bases__[0]


@app.callback()
def root(
    ctx: typer.Context,
    database_url: DatabaseUrl = None,
    json: Json = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Durable background tasks on SQLite or PostgreSQL: submit them, run them, see what became of them."""
    ctx.obj = GlobalOptions(database_url, json)
    if ctx.invoked_subcommand is None:
        if version:
            database.say_version(as_json=json)
            raise typer.Exit
        typer.echo(ctx.get_help())
        raise typer.Exit(Exit.USAGE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; an error is one line on stderr, never a stack trace."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # What the terminal's encoding lacks is shown as an escape instead of ending the command.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = _commands().main(args=given, prog_name="tasklib", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()
    except UsageError as error:
        command = error.ctx.command_path if error.ctx else "tasklib"
        message = f"{error.format_message().replace('Value error, ', '')} (see: {command} --help)"
        if "--json" in given:
            Output(as_json=True).failure("UsageError", message, Exit.USAGE)
        return _fail(message, Exit.USAGE)
    except Exception as error:
        if _came_from_ctrl_c(error):
            return _interrupted()
        code = code_for(error)
        if code is not Exit.INTERNAL:
            return _fail(str(error), code)
        if os.environ.get("TASKLIB_DEBUG"):
            raise
        return _fail(
            f"unexpected {type(error).__name__}: {error} (a bug in tasklib; TASKLIB_DEBUG=1 shows where)", code
        )
    if code == Exit.INTERRUPTED:
        return _interrupted()
    return code if isinstance(code, int) else Exit.OK


def _open_closed_streams() -> None:
    """Standard streams that were closed before the program started, as by `>&-`, lead nowhere: a file that is opened
    later must not get their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is the stream's
            os.set_inheritable(nowhere, True)
            setattr(sys, name, os.fdopen(nowhere, mode))


@cache
def _commands() -> Any:
    """All commands as Typer builds them, once in a program that calls `main` repeatedly."""
    return get_command(app)


def _came_from_ctrl_c(error: BaseException | None) -> bool:
    """Whether the command was being interrupted when the error occurred: cleaning up may fail."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _interrupted() -> Exit:
    sys.stderr.write("interrupted\n")
    return Exit.INTERRUPTED


def _fail(message: str, code: Exit) -> Exit:
    sys.stderr.write(f"error: {one_line(message)}\n")
    return code
