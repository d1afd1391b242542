"""Acting on tasks, by id or by filter: retry, cancel, priority, delete, cleanup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.command import Cli, command
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.name_patterns import each_name
from tasklib.cli.options import values
from tasklib.cli.options.common import DryRun, Selection, one_of

if TYPE_CHECKING:
    from tasklib.core.lifecycle import Action
    from tasklib.core.task import Task, TaskFilter

GROUP = "Tasks"
DOING = {"retry": "Starting", "cancel": "Cancelling", "delete": "Deleting"}
PAST = {"retry": "Started again", "cancel": "Cancelled", "delete": "Deleted"}

app = typer.Typer()


@command(
    app,
    "retry",
    group=GROUP,
    examples="""
    tasklib retry 0199f1e2-7c3a-7000-8000-000000000000
    tasklib retry --all-matching --state failed --name send_email --dry-run
    tasklib retry --all-matching --search "connection refused" --yes
    """,
)
def retry(cli: Cli, selection: Selection) -> None:
    """Retry tasks, from zero attempts.

    With --all-matching and no --state: those that failed for good, wait for their retry, or were buried.
    """
    _act(cli, "retry", selection)


@command(
    app,
    "cancel",
    group=GROUP,
    examples="""
    tasklib cancel 0199f1e2-7c3a-7000-8000-000000000000
    tasklib cancel --all-matching --state delayed --tag batch=daily
    """,
)
def cancel(cli: Cli, selection: Selection) -> None:
    """Cancel tasks that wait or run.

    Waiting ones are cancelled at once, running ones as soon as their worker has stopped them.
    """
    _act(cli, "cancel", selection)


@command(
    app,
    "delete",
    group=GROUP,
    examples="""
    tasklib delete 0199f1e2-7c3a-7000-8000-000000000000
    tasklib delete --all-matching --state cancelled --yes
    """,
)
def delete(cli: Cli, selection: Selection) -> None:
    """Delete finished tasks for good.

    With --all-matching and no --state: those that failed for good or were buried.
    """
    _act(cli, "delete", selection)


@command(
    app,
    "priority",
    group=GROUP,
    examples="""
    tasklib priority 9 0199f1e2-7c3a-7000-8000-000000000000
    tasklib priority 9 --all-matching --name send_email --dry-run
    tasklib priority --all-matching --name report -- -5
    """,
)
def priority(
    cli: Cli,
    number: Annotated[int, typer.Argument(metavar="N", help="Higher runs first.", show_default=False)],
    selection: Selection,
) -> None:
    """Change the priority of tasks that have not ended."""
    if selection.all_matching == bool(selection.ids):
        raise CommandFailed("which tasks? Give either their ids, or --all-matching with options", Exit.USAGE)
    if selection.ids:
        ids = [cli.service.find_id(task_id) for task_id in selection.ids]
        count = len([cli.service.queue.set_priority(task_id, number) for task_id in ids])
    else:
        count = _prioritize_matching(cli, number, selection)
    verb = "Would get" if selection.dry_run else "Got"
    data = {"action": "priority", "priority": number, "dry_run": selection.dry_run, "count": count}
    cli.out.answer(data, lambda: cli.out.line(f"{verb} priority {number}: {counted(count)}."))


@command(
    app,
    "cleanup",
    group=GROUP,
    examples="""
    tasklib cleanup --older-than 30d
    tasklib cleanup --older-than 7d --state completed --state cancelled --name send_email
    tasklib cleanup --older-than 2030-01-31 --dry-run
    """,
)
def cleanup(
    cli: Cli,
    older_than: Annotated[
        str,
        typer.Option(
            metavar="AGE", help="Tasks that ended longer ago than this (30d, 12h), or before a date (2030-01-31)."
        ),
    ],
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            "-s",
            metavar="STATE",
            help="completed (the default), failed, cancelled or buried; may be repeated.",
            show_default=False,
            autocompletion=one_of("completed", "failed", "cancelled", "buried"),
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", "-n", metavar="NAME", help="Only tasks of this name, or of names like 'call*'."),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Delete tasks that ended long ago.

    It takes a few at a time, so that nobody has to wait for it.
    """
    from tasklib.core.lifecycle import CLEANUP_STATES
    from tasklib.core.task import TaskFilter

    age, ended = values.duration_or_moment(older_than), state or CLEANUP_STATES
    names = [None] if name is None else [each.name for each in each_name(cli.service, TaskFilter(name=name))]

    def clean_up(on_progress: Callable[[int], None] | None = None, *, dry_run: bool = False) -> int:
        return sum(
            cli.service.cleanup(age, ended, name=each, dry_run=dry_run, on_progress=on_progress) for each in names
        )

    if dry_run:
        count = clean_up(dry_run=True)
    else:
        # To count them is to look at every finished task: worth it only for a person at a progress bar.
        total = clean_up(dry_run=True) if cli.out.shows_progress else None
        with cli.out.progress("Cleaning up", total) as on_progress:
            count = clean_up(on_progress=on_progress)
    verb = "Would delete" if dry_run else "Deleted"
    data = {"action": "cleanup", "dry_run": dry_run, "count": count}
    cli.out.answer(data, lambda: cli.out.line(f"{verb} {counted(count)}."))


def _act(cli: Cli, name: str, selection: Selection) -> None:
    from tasklib.core.lifecycle import Action
    from tasklib.core.task import TaskFilter

    action, which, ids = Action(name), selection.filter, selection.ids
    if selection.all_matching and ids:
        raise CommandFailed("give either ids or --all-matching, not both", Exit.USAGE)
    if selection.all_matching:
        _act_on_matching(cli, action, which, yes=selection.yes, dry_run=selection.dry_run)
    elif which != TaskFilter():
        raise CommandFailed(f"add --all-matching to {action} every task that fits these options", Exit.USAGE)
    elif not ids:
        raise CommandFailed(
            f"which tasks? Give their ids, or --all-matching with options; see: tasklib {action} --help", Exit.USAGE
        )
    elif selection.dry_run:
        raise CommandFailed(
            "--dry-run goes with --all-matching; look at single tasks with: tasklib show ID", Exit.USAGE
        )
    else:
        _act_on_each(cli, action, ids)


def _act_on_each(cli: Cli, action: Action, ids: list[str]) -> None:
    """One after the other: what cannot be done is reported, and does not stop the rest."""
    from tasklib.errors import StorageError, TaskLibError

    done: list[Task] = []
    refused: list[dict[str, str]] = []
    for task_id in ids:
        try:
            done.append(cli.service.act(action, cli.service.find_id(task_id)))
        except StorageError:
            raise
        except TaskLibError as error:
            refused.append({"id": task_id, "error": type(error).__name__, "message": str(error)})

    def say() -> None:
        for task in done:
            cli.out.line(f"{_said(action, task)} {task.id} ({task.name})")

    cli.out.answer({"action": action, "count": len(done), "tasks": done, "errors": refused}, say)
    for each in refused[:-1]:
        cli.out.error(each["message"])
    if refused:
        raise CommandFailed(refused[-1]["message"])


def _act_on_matching(cli: Cli, action: Action, which: TaskFilter, *, yes: bool, dry_run: bool) -> None:
    filters = each_name(cli.service, which)
    matching = sum(cli.service.act_on_matching(action, each, dry_run=True) for each in filters)
    if matching and not dry_run and not yes and not cli.out.confirm(f"{action.capitalize()} {counted(matching)}?"):
        raise CommandFailed("nothing was changed")
    count = matching
    if matching and not dry_run:
        with cli.out.progress(f"{DOING[action]} tasks", matching) as on_progress:
            count = _in_turn(
                filters,
                lambda each, on_progress: cli.service.act_on_matching(action, each, on_progress=on_progress),
                on_progress,
            )

    def say() -> None:
        if not matching:
            cli.out.line("No task matches; nothing to do.")
        else:
            cli.out.line(f"Would {action} {counted(count)}." if dry_run else f"{PAST[action]}: {counted(count)}.")

    cli.out.answer({"action": action, "dry_run": dry_run, "count": count}, say)


def _prioritize_matching(cli: Cli, number: int, selection: Selection) -> int:
    from tasklib.core.lifecycle import Action

    filters = each_name(cli.service, selection.filter)
    prioritize = partial(cli.service.act_on_matching, Action.PRIORITIZE, priority=number)
    count = sum(prioritize(each, dry_run=True) for each in filters)
    if selection.dry_run or not count:
        return count
    if not selection.yes and not cli.out.confirm(f"Give {counted(count)} priority {number}?"):
        raise CommandFailed("nothing was changed")
    with cli.out.progress("Prioritizing tasks", count) as on_progress:
        return _in_turn(filters, lambda each, on_progress: prioritize(each, on_progress=on_progress), on_progress)


def _in_turn(
    filters: Sequence[TaskFilter],
    act: Callable[[TaskFilter, Callable[[int], None]], int],
    on_progress: Callable[[int], None],
) -> int:
    """Act on the tasks of one filter after the other; the sum."""
    total = 0
    for each in filters:
        before = total
        total += act(each, lambda done, before=before: on_progress(before + done))  # type: ignore[misc]
    return total


def _said(action: Action, task: Task) -> str:
    running = action == "cancel" and task.completed_at is None
    return "Asked its worker to stop" if running else PAST[action]


def counted(count: int) -> str:
    """`1 task`, `2,000 tasks`."""
    return f"{count:,} task{'' if count == 1 else 's'}"
