"""The database itself: migrate; and version."""

from __future__ import annotations

from typing import Annotated

import typer

from tasklib.cli.command import Cli, command, missing_file
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.show.output import Output

GROUP = "Set-up"

app = typer.Typer()


@command(
    app,
    "migrate",
    group=GROUP,
    creates=True,
    examples="""
    tasklib migrate --database-url postgresql://localhost/app
    tasklib migrate --check
    """,
)
def migrate(
    cli: Cli, check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 3 if it is behind.")] = False
) -> None:
    """Create the tables or bring them up to date.

    It is safe to run at any time, also while workers run.
    """
    from tasklib.core.config import redact_url

    where = redact_url(cli.config.database_url)
    if check:
        _check(cli)
        applied: list[str] = []
    else:
        applied = list(cli.service.queue.migrate())

    def say() -> None:
        for name in applied:
            cli.out.line(f"Applied {name}")
        cli.out.line(f"{where} is up to date.")

    cli.out.answer({"database": where, "applied": applied}, say)


@command(app, "version", group=GROUP, examples="tasklib version")
def version(cli: Cli) -> None:
    """Show the versions in use."""
    say_version(as_json=cli.out.as_json)


def say_version(*, as_json: bool) -> None:
    """Print which versions are in use."""
    import platform
    import sqlite3
    from importlib.metadata import version as installed

    import tasklib

    versions = {
        "tasklib": tasklib.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "psycopg": installed("psycopg"),
    }
    out = Output(as_json=as_json)
    rest = ", ".join(f"{name} {number}" for name, number in versions.items() if name != "tasklib")
    out.answer(versions, lambda: out.line(f"tasklib {versions['tasklib']} ({rest})"))


def _check(cli: Cli) -> None:
    from tasklib.queue import TaskQueue

    if missing := missing_file(cli.config):
        raise CommandFailed(f"there is no database {missing} yet; create it by: tasklib migrate", Exit.DATABASE)
    with TaskQueue(cli.config.with_(auto_migrate=False)) as queue:
        queue.pauses()
