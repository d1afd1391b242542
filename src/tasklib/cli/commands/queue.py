"""The queue as a whole: stats, types, pause, resume."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated

from tasklib.cli.command import Cli, Commands
from tasklib.cli.options.declare import argument, option
from tasklib.cli.show.queue import show_overview, show_pauses, show_scale, show_types
from tasklib.core.insights.scale import OBJECTIVE_SECONDS

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


@app.add()
def scale(
    cli: Cli,
    names: Annotated[
        list[str] | None, argument("NAMES", "Tasks of these names.  [default: every name with something to do]")
    ] = None,
    objective: Annotated[
        float, option("SECONDS", "Within how long what is due should have run.", min=0.001)
    ] = OBJECTIVE_SECONDS,
    concurrency: Annotated[
        int | None, option("N", "Tasks that one worker runs at once.  [default: as those alive]", min=1)
    ] = None,
) -> None:
    """Show what waits and can run, and how many workers it would take.

    Running tasks count, so that a fleet shrinks only when its work has ended.

    Examples:
        tasklib scale
        tasklib scale resize transcode --objective 30 --concurrency 4
        tasklib scale --json
    """
    found = cli.service.statistics.scale(names=names or (), objective_seconds=objective, slots_per_worker=concurrency)
    cli.out.answer(found, lambda: show_scale(cli.out, found))


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
