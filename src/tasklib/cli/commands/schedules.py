"""Repeated tasks: schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from tasklib.cli.command import Cli, Commands
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.options import values
from tasklib.cli.options.declare import argument, option
from tasklib.cli.show.queue import show_schedule, show_schedules
from tasklib.core.schedule import Schedule

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

ADD = "Options of add"
ACTIONS = ("list", "add", "show", "run", "pause", "resume", "remove")

app = Commands("Queue")


@dataclass(frozen=True, slots=True)
class ScheduleAction:
    """The action, and the schedule it is for."""

    action: Annotated[str, argument("|".join(ACTIONS), "What to do.", words=ACTIONS)] = "list"
    name: Annotated[str | None, argument("NAME", "The schedule's name.")] = None


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """The task to submit, and when."""

    arguments: Annotated[list[str] | None, argument("KEY=VALUE", "Arguments of each task, as for submit.")] = None
    task: Annotated[str | None, option("NAME", "The task to run.", panel=ADD)] = None
    cron: Annotated[
        str | None, option("CRON", "When: minute hour day month weekday, or @daily and the like.", panel=ADD)
    ] = None
    every: Annotated[str | None, option("TIME", "How often: 30s, 15m, 1d.", panel=ADD)] = None
    tz: Annotated[str, option("ZONE", "Time zone of --cron.", panel=ADD, show_default=True)] = "UTC"


@app.add()
def schedules(cli: Cli, chosen: ScheduleAction, new: NewSchedule) -> None:
    """List, create, change or run schedules, which submit a task repeatedly.

    Workers fire them; each tick submits exactly one task, however many workers run. Adding one that exists changes it.

    Examples:
        tasklib schedules
        tasklib schedules add nightly --task report --cron "0 3 * * *" --tz Europe/Paris depth=2
        tasklib schedules add heartbeat --task ping --every 30s
        tasklib schedules show nightly
        tasklib schedules pause nightly
    """
    if chosen.action not in ACTIONS:
        raise CommandFailed(f"no such action: {chosen.action!r}; there are {', '.join(ACTIONS)}", Exit.USAGE)
    cli.creates = chosen.action == "add"
    if chosen.action == "list":
        _say_all(cli, cli.service.schedules.all())
    elif chosen.name is None:
        raise CommandFailed(f"which schedule? Give its name: tasklib schedules {chosen.action} NAME", Exit.USAGE)
    else:
        _act(cli, chosen.action, chosen.name, new)


def _act(cli: Cli, action: str, name: str, new: NewSchedule) -> None:
    queue = cli.service.queue
    match action:
        case "add":
            _add(queue, name, new)
            _say_one(cli, name)
        case "run":
            task_id = _known(queue.run_schedule(name), name)
            cli.out.answer({"id": task_id, "schedule": name}, lambda: cli.out.line(f"Submitted {task_id}"))
        case "remove":
            _known(queue.remove_schedule(name) or None, name)
            cli.out.answer({"removed": name}, lambda: cli.out.line(f"Removed {name}; tasks it has submitted stay."))
        case _:
            if action != "show":
                changed = queue.pause_schedule(name, by=cli.user) if action == "pause" else queue.resume_schedule(name)
                _known(changed or None, name)
            _say_one(cli, name)


def _add(queue: TaskQueue, name: str, new: NewSchedule) -> None:
    if new.task is None:
        raise CommandFailed("which task? Give its name by --task", Exit.USAGE)
    if (new.cron is None) == (new.every is None):
        raise CommandFailed("when? Give either --cron or --every, as in: --cron '0 3 * * *'", Exit.USAGE)
    seconds = None if new.every is None else values.duration(new.every).total_seconds()
    kwargs = values.pairs(new.arguments or (), "argument")
    queue.add_schedule(name, task=new.task, cron=new.cron, every=seconds, tz=new.tz, kwargs=kwargs)


def _known(answer: Any, name: str) -> Any:
    if answer is None:
        raise CommandFailed(f"there is no schedule {name!r}; see: tasklib schedules")
    return answer


def _say_all(cli: Cli, found: Sequence[Schedule]) -> None:
    none = 'No schedules. Create one: tasklib schedules add nightly --task report --cron "0 3 * * *"'
    data = {"schedules": [_data(schedule) for schedule in found]}
    cli.out.answer_list(data, lambda: show_schedules(cli.out, found, cli.now()), none)


def _say_one(cli: Cli, name: str) -> None:
    schedule: Schedule = _known(cli.service.schedules.get(name), name)
    cli.out.answer(_data(schedule), lambda: show_schedule(cli.out, schedule, cli.now()))


def _data(schedule: Schedule) -> dict[str, Any]:
    """The schedule's options and its latest run side by side, with the next five runs."""
    from tasklib.service.service import as_data

    data: dict[str, Any] = as_data(schedule)
    plan = {name: value for name, value in data.pop("plan").items() if name != "secrets"}
    return {**plan, **data, "next_runs": schedule.next_runs()}
