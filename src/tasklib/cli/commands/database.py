"""The database itself: migrate; and version."""

from __future__ import annotations

from typing import Annotated

from tasklib.cli.command import Cli, Commands, missing_file
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.options.declare import option
from tasklib.cli.show.output import Output
from tasklib.core.config import redact_url

app = Commands("Set-up")


@app.add(creates=True)
def migrate(
    cli: Cli,
    check: Annotated[bool, option(None, "Change nothing; exit 3 if it is behind.", "--check")] = False,
    sql: Annotated[bool, option(None, "Change nothing; print the SQL that would run.", "--sql")] = False,
) -> None:
    """Create the tables or bring them up to date.

    It is safe to run at any time, also while workers run.

    Examples:
        tasklib migrate --database-url postgresql://localhost/app
        tasklib migrate --check
        tasklib migrate --sql
    """
    where = redact_url(cli.config.database_url)
    if sql:
        _say_script(cli, where)
        return
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


def _say_script(cli: Cli, where: str) -> None:
    from tasklib.queue import TaskQueue
    from tasklib.service.service import QueueService

    with TaskQueue(cli.config) as queue:
        script = QueueService(queue).administration.migration_script()

    def say() -> None:
        cli.out.block(script.rstrip() or f"-- {where} is up to date: nothing to run", indent="")

    cli.out.answer({"database": where, "sql": script}, say)


@app.add()
def version(cli: Cli) -> None:
    """Show the versions in use.

    Examples:
        tasklib version
    """
    say_version(as_json=cli.out.as_json)


def say_version(*, as_json: bool) -> None:
    """Print which versions are in use."""
    import platform
    import sqlite3
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    import tasklib

    try:
        driver = installed("psycopg")
    except PackageNotFoundError:
        driver = "not installed"
    versions = {
        "tasklib": tasklib.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "psycopg": driver,
    }
    out = Output(as_json=as_json)
    rest = ", ".join(f"{name} {number}" for name, number in versions.items() if name != "tasklib")
    out.answer(versions, lambda: out.line(f"tasklib {versions['tasklib']} ({rest})"))


def _check(cli: Cli) -> None:
    from tasklib.queue import TaskQueue
    from tasklib.service.service import QueueService

    if missing := missing_file(cli.config):
        raise CommandFailed(f"there is no database {missing} yet; create it by: tasklib migrate", Exit.DATABASE)
    with TaskQueue(cli.config.with_(auto_migrate=False)) as queue:
        QueueService(queue).administration.require_tables()
