"""What went wrong: errors, redrive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.command import Cli, command
from tasklib.cli.commands.actions import counted
from tasklib.cli.exit_codes import CommandFailed
from tasklib.cli.options.common import DryRun

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tasklib.cli.show.output import Output
    from tasklib.core.task import ErrorGroup

GROUP = "Tasks"

app = typer.Typer()


@command(app, "errors", group=GROUP, examples="tasklib errors\ntasklib errors send_email --json")
def errors(
    cli: Cli,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only tasks of this name.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", metavar="N", min=1, help="Groups to show.")] = 50,
) -> None:
    """Show failures, grouped by kind of error.

    Every task counts that failed for good or was buried. The id of a group is what redrive takes.
    """
    groups = cli.service.error_groups.all(name, limit=limit)

    def say() -> None:
        if groups:
            show_errors(cli.out, groups, cli.now())
        else:
            cli.out.line("No task has failed for good.")

    cli.out.answer({"errors": groups}, say)


@command(app, "redrive", group=GROUP, examples="tasklib redrive 3f9a1c0b7d22\ntasklib redrive 3f9a1c0b7d22 --rate 10")
def redrive(
    cli: Cli,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The id of a group, as `tasklib errors` shows it.")],
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", help="Tasks that become due per second; all at once without it."),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Retry every task of a group of errors.

    Their attempts restart at zero. With --rate they become due one after the other.
    """
    found = cli.service.error_groups.find(group)
    if found is None:
        raise CommandFailed(f"no group of errors has the id {group!r}; `tasklib errors` shows them")
    count = cli.service.queue.redrive(found, rate=rate, dry_run=dry_run)
    verb = "Would retry" if dry_run else "Retried"
    pace = f", {rate:g} per second" if rate else ""
    data = {"action": "redrive", "group": group, "dry_run": dry_run, "count": count}
    cli.out.answer(data, lambda: cli.out.line(f"{verb} {counted(count)}{pace}."))


def show_errors(out: Output, groups: Sequence[ErrorGroup], now: datetime) -> None:
    """A table of the groups, the latest first."""
    from tasklib.cli.show import times
    from tasklib.cli.show.output import Cell, Column

    rows: list[list[str | Cell]] = [
        [
            group.id,
            f"{group.count:,}",
            group.name,
            times.ago(group.first_seen, now),
            times.ago(group.last_seen, now),
            group.fingerprint or group.message or "unknown",
        ]
        for group in groups
    ]
    columns = [Column("GROUP"), Column("TASKS", right=True), Column("NAME"), Column("FIRST"), Column("LAST")]
    out.table([*columns, Column("ERROR", fluid=True)], rows)
