"""Commands for errors: `errors` lists groups of them, `redrive` retries one."""

from __future__ import annotations

from typing import Annotated

from tasklib.cli.command import Cli, Commands
from tasklib.cli.commands.actions import counted
from tasklib.cli.exit_codes import CommandFailed
from tasklib.cli.options.common import DryRun
from tasklib.cli.options.declare import argument, option
from tasklib.cli.show.tasks import show_errors

app = Commands("Tasks")


@app.add()
def errors(
    cli: Cli,
    name: Annotated[str | None, argument("NAME", "Only tasks of this name.")] = None,
    limit: Annotated[int, option("N", "Groups to show.", "--limit", "-l", min=1, show_default=True)] = 50,
) -> None:
    """Show failures, grouped by kind of error.

    It counts every task that failed for good or was buried; redrive takes the id of a group.

    Examples:
        tasklib errors
        tasklib errors send_email --json
    """
    groups = cli.service.error_groups.all(name, limit=limit)
    cli.out.answer_list(
        {"errors": groups}, lambda: show_errors(cli.out, groups, cli.now()), "No task has failed for good."
    )


@app.add()
def redrive(
    cli: Cli,
    group: Annotated[str, argument("GROUP", "The id of a group, as `tasklib errors` shows it.")],
    rate: Annotated[
        float | None, option("N", "Tasks that become due per second; all at once without it.", "--rate")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Retry every task of a group of errors.

    Their attempts restart at zero. With --rate they become due one after the other.

    Examples:
        tasklib redrive 3f9a1c0b7d22
        tasklib redrive 3f9a1c0b7d22 --rate 10
    """
    found = cli.service.error_groups.find(group)
    if found is None:
        raise CommandFailed(f"no group of errors has the id {group!r}; `tasklib errors` shows them")
    count = cli.service.queue.redrive(found, rate=rate, dry_run=dry_run)
    verb = "Would retry" if dry_run else "Retried"
    pace = f", {rate:g} per second" if rate else ""
    data = {"action": "redrive", "group": group, "dry_run": dry_run, "count": count}
    cli.out.answer(data, lambda: cli.out.line(f"{verb} {counted(count)}{pace}."))
