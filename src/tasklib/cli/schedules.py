"""Repeated tasks: schedules."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasklib.cli import parse
from tasklib.cli.command import Cli, command
from tasklib.cli.exits import CommandFailed, Exit
from tasklib.cli.options import one_of
from tasklib.cli.person import person

if TYPE_CHECKING:
    from tasklib.schedule import Schedule

GROUP = "Queue"
ADD = "Options of add"
ACTIONS = ("list", "add", "show", "run", "pause", "resume", "remove")

app = typer.Typer()


@command(
    app,
    "schedules",
    group=GROUP,
    examples="""
    tasklib schedules
    tasklib schedules add nightly --task report --cron "0 3 * * *" --tz Europe/Paris depth=2
    tasklib schedules add heartbeat --task ping --every 30s
    tasklib schedules show nightly
    tasklib schedules pause nightly
    """,
)
def schedules(
    cli: Cli,
    action: Annotated[
        str,
        typer.Argument(
            metavar="|".join(ACTIONS), help="What to do.", show_default=False, autocompletion=one_of(*ACTIONS)
        ),
    ] = "list",
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The schedule's name.", show_default=False)] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Arguments of each task, as for submit.", show_default=False),
    ] = None,
    task: Annotated[str | None, typer.Option(metavar="NAME", help="The task to run.", rich_help_panel=ADD)] = None,
    cron: Annotated[
        str | None, typer.Option(metavar="CRON", help="When: minute hour day month weekday.", rich_help_panel=ADD)
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="How often: 30s, 15m, 1d.", rich_help_panel=ADD)
    ] = None,
    tz: Annotated[str, typer.Option(metavar="ZONE", help="Time zone of --cron.", rich_help_panel=ADD)] = "UTC",
) -> None:
    """List, make, change or run schedules, which submit a task again and again.

    Workers fire them; each tick makes exactly one task, however many workers run. Adding one that exists changes it.
    """
    if action not in ACTIONS:
        raise CommandFailed(f"no such action: {action!r}; there are {', '.join(ACTIONS)}", Exit.USAGE)
    cli.creates = action == "add"
    queue = cli.manage.queue
    if action == "list":
        _say_all(cli, list(queue.schedules()))
        return
    if name is None:
        raise CommandFailed(f"which schedule? Give its name: tasklib schedules {action} NAME", Exit.USAGE)
    match action:
        case "add":
            if task is None:
                raise CommandFailed("which task? Give its name by --task", Exit.USAGE)
            seconds = None if every is None else parse.duration(every).total_seconds()
            kwargs = parse.pairs(arguments or (), "argument")
            _say_one(cli, queue.add_schedule(name, task=task, cron=cron, every=seconds, tz=tz, kwargs=kwargs))
        case "run":
            task_id = _known(queue.run_schedule(name), name)
            cli.out.answer({"id": task_id, "schedule": name}, lambda: cli.out.line(f"Submitted {task_id}"))
        case "remove":
            _known(queue.remove_schedule(name) or None, name)
            cli.out.answer({"removed": name}, lambda: cli.out.line(f"Removed {name}; tasks it has made stay."))
        case _:
            if action != "show":
                changed = queue.pause_schedule(name, by=person()) if action == "pause" else queue.resume_schedule(name)
                _known(changed or None, name)
            _say_one(cli, _known(queue.get_schedule(name), name))


def _known(answer: Any, name: str) -> Any:
    if answer is None:
        raise CommandFailed(f"there is no schedule {name!r}; see: tasklib schedules")
    return answer


def _hidden(cli: Cli, schedule: Schedule) -> Schedule:
    kwargs = cli.manage.redactor.value(schedule.plan.kwargs)
    return replace(schedule, plan=replace(schedule.plan, kwargs=kwargs))


def _say_all(cli: Cli, found: list[Schedule]) -> None:
    found = [_hidden(cli, schedule) for schedule in found]

    def say() -> None:
        from tasklib.cli.queue_views import show_schedules

        if found:
            show_schedules(cli.out, found)
        else:
            cli.out.line('No schedules. Make one: tasklib schedules add nightly --task report --cron "0 3 * * *"')

    cli.out.answer({"schedules": [_data(schedule) for schedule in found]}, say)


def _say_one(cli: Cli, schedule: Schedule) -> None:
    schedule = _hidden(cli, schedule)

    def say() -> None:
        from tasklib.cli.queue_views import show_schedule

        show_schedule(cli.out, schedule)

    cli.out.answer(_data(schedule), say)


def _data(schedule: Schedule) -> dict[str, Any]:
    """What was decided and what became of it, side by side, with the next five runs."""
    from tasklib.manage import as_data

    data: dict[str, Any] = as_data(schedule)
    return {**data.pop("plan"), **data, "next_runs": schedule.next_runs()}
