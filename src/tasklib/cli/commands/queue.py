"""The queue as a whole: stats, types, pause, resume."""

from __future__ import annotations

from typing import Annotated

import typer

from tasklib.cli.command import Cli, command

GROUP = "Queue"

app = typer.Typer()

PausedName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="Tasks of this name; the whole queue without it.", show_default=False),
]


@command(app, "stats", group=GROUP, examples="tasklib stats\ntasklib stats --json")
def stats(cli: Cli) -> None:
    """Count the tasks by state."""
    overview = cli.service.statistics.overview()

    def say() -> None:
        from tasklib.cli.show.queue import show_overview

        show_overview(cli.out, overview)

    data = {
        "total": overview.stats.total,
        **_fields(overview.stats),
        "pauses": overview.pauses,
        "workers_alive": overview.workers_alive,
    }
    cli.out.answer(data, say)


@command(app, "types", group=GROUP, examples="tasklib types")
def types(cli: Cli) -> None:
    """Show each task name with its counts.

    Lists every name that a stored task has or that a worker knows.
    """
    found = cli.service.statistics.types()

    def say() -> None:
        from tasklib.cli.show.queue import show_types

        if found:
            show_types(cli.out, found)
        else:
            cli.out.line(
                "No task names yet: nothing is stored, and no worker is alive. Start one: tasklib worker app.tasks"
            )

    cli.out.answer({"types": found}, say)


@command(
    app,
    "pause",
    group=GROUP,
    creates=True,
    examples="""
    tasklib pause
    tasklib pause send_email --reason "the mail server is down"
    """,
)
def pause(
    cli: Cli,
    name: PausedName = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; shown wherever the pause is shown.")] = None,
) -> None:
    """Pause: no worker starts tasks until resumed.

    The pause is stored, so it holds across restarts and machines. Running tasks finish.
    """
    cli.service.queue.pause(name, by=cli.user, reason=reason)
    _say_pauses(cli)


@command(app, "resume", group=GROUP, creates=True, examples="tasklib resume\ntasklib resume send_email")
def resume(cli: Cli, name: PausedName = None) -> None:
    """Resume tasks that were paused."""
    resumed = cli.service.queue.resume(name)
    what = f"Tasks named {name}" if name else "Tasks of any name"
    left = cli.service.queue.pauses()

    def say() -> None:
        from tasklib.cli.show.queue import show_pauses

        cli.out.line(f"{what} {'may start again.' if resumed else 'were not paused.'}")
        show_pauses(cli.out, left)

    cli.out.answer({"resumed": resumed, "pauses": left}, say)


def _say_pauses(cli: Cli) -> None:
    pauses = cli.service.queue.pauses()

    def say() -> None:
        from tasklib.cli.show.queue import show_pauses

        show_pauses(cli.out, pauses)

    cli.out.answer({"pauses": pauses}, say)


def _fields(value: object) -> dict[str, object]:
    from dataclasses import fields

    return {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]
