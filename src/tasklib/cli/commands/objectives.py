"""Objectives: how many tasks should start, or end, within a time; shown, set and removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from tasklib.cli.command import Cli, Commands
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.options import values
from tasklib.cli.options.declare import argument, option

if TYPE_CHECKING:
    from tasklib.core.insights.objectives import Kind, ObjectiveStatus

KINDS = ("wait", "run")

app = Commands("Queue")


@app.add()
def objectives(
    cli: Cli,
    name: Annotated[str | None, argument("NAME", "Tasks of this name; all together without it.")] = None,
    within: Annotated[str | None, option("TIME", "Set the objective: at most this long, as 5s, 200ms, 1m.")] = None,
    target: Annotated[float, option("PERCENT", "Of the attempts.", show_default=True)] = 99.5,
    kind: Annotated[
        str, option("KIND", "wait: from due to started; run: from started to ended.", words=KINDS, show_default=True)
    ] = "wait",
    remove: Annotated[bool, option(None, "Remove the objective.", "--remove")] = False,
    over: Annotated[str, option("TIME", "Measure them over this time.", show_default=True)] = "24h",
) -> None:
    """Show how objectives stand, or set or remove one.

    The error budget says how much may still miss the objective: 100 % if nothing has, below 0 % if it is overspent.

    Examples:
        tasklib objectives
        tasklib objectives send_email --within 5s
        tasklib objectives send_email --kind run --within 1m --target 99
        tasklib objectives send_email --remove
    """
    if remove and within is not None:
        raise CommandFailed("give --within to set an objective, or --remove, not both", Exit.USAGE)
    if kind not in KINDS:
        raise CommandFailed(f"a kind is one of {', '.join(KINDS)}, got {kind!r}", Exit.USAGE)
    chosen: Kind = "run" if kind == "run" else "wait"
    cli.creates = within is not None
    queue = cli.service.queue
    if within is not None:
        seconds = values.duration(within).total_seconds()
        queue.set_objective(name, within_seconds=seconds, target=target, kind=chosen, by=cli.user)
    if remove and not queue.remove_objective(name, kind=chosen):
        which = f"the {kind} of {name or 'all tasks together'}"
        raise CommandFailed(f"there is no objective about {which}; see: tasklib objectives")
    found = queue.objectives(seconds=int(values.duration(over).total_seconds()))

    def say() -> None:
        for each in found:
            _show(cli, each)
        if not found:
            cli.out.line("No objectives. Set one: tasklib objectives send_email --within 5s")

    cli.out.answer({"objectives": found}, say)


def _show(cli: Cli, each: ObjectiveStatus) -> None:
    what = f"{each.objective.name or 'All tasks together'}: {each.objective}"
    if each.within is None:
        cli.out.line(f"{what}; nothing has run")
        return
    budget = f"{each.budget:g} % of the error budget left"
    cli.out.line(f"{what}; {each.within:g} % of {each.count:,} did, {budget}", "yellow" if each.at_risk else "")
