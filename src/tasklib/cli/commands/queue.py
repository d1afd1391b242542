"""The queue as a whole: stats, types, pause, resume."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated

from tasklib.cli.command import Cli, Commands
from tasklib.cli.options.declare import argument, option
from tasklib.cli.show.queue import show_overview, show_pauses, show_types

app = Commands("Queue")

PausedName = Annotated[str | None, argument("NAME", "Tasks of this name; the whole queue without it.")]


@app.add()
def stats(cli: Cli) -> None:
    """Count the tasks by state.

    Examples:
        tasklib stats
        tasklib stats --json
    """
    overview = cli.service.statistics.overview()
    counts = overview.stats
    data = {
        "total": counts.total,
        **{field.name: getattr(counts, field.name) for field in fields(counts)},
        "pauses": overview.pauses,
        "workers_alive": overview.workers_alive,
    }
    cli.out.answer(data, lambda: show_overview(cli.out, overview))


@app.add()
def types(cli: Cli) -> None:
    """Show each task name with its counts.

    Lists every name that a stored task has or that a worker defines.

    Examples:
        tasklib types
    """
    found = cli.service.statistics.types()
    none = "No task names yet: nothing is stored, and no worker is alive. Start one: tasklib worker app.tasks"
    cli.out.answer_list({"types": found}, lambda: show_types(cli.out, found), none)


@app.add(creates=True)
def pause(
    cli: Cli,
    name: PausedName = None,
    reason: Annotated[str | None, option("TEXT", "Why; shown wherever the pause is shown.")] = None,
) -> None:
    """Pause: no worker starts tasks until resumed.

    The pause is stored, so it holds across restarts and machines. Running tasks finish.

    Examples:
        tasklib pause
        tasklib pause send_email --reason "the mail server is down"
    """
    cli.service.queue.pause(name, by=cli.user, reason=reason)
    pauses = cli.service.queue.pauses()
    cli.out.answer({"pauses": pauses}, lambda: show_pauses(cli.out, pauses))


@app.add(creates=True)
def resume(cli: Cli, name: PausedName = None) -> None:
    """Resume tasks that were paused.

    Examples:
        tasklib resume
        tasklib resume send_email
    """
    resumed = cli.service.queue.resume(name)
    what = f"Tasks named {name}" if name else "Tasks of any name"
    left = cli.service.queue.pauses()

    def say() -> None:
        cli.out.line(f"{what} {'may start again.' if resumed else 'were not paused.'}")
        show_pauses(cli.out, left)

    cli.out.answer({"resumed": resumed, "pauses": left}, say)
