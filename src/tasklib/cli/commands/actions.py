"""Acting on tasks, by id or by filter: retry, cancel, priority, delete, cleanup."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final

from tasklib.cli.command import Cli, Commands
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.name_patterns import each_name
from tasklib.cli.options import values
from tasklib.cli.options.common import DryRun, Selection
from tasklib.cli.options.declare import argument, option
from tasklib.core.lifecycle import CLEANUP_STATES, Action
from tasklib.core.queue_info import TaskFilter
from tasklib.core.task import Task
from tasklib.errors import StorageError, TaskLibError

DOING = {Action.RETRY: "Starting", Action.CANCEL: "Cancelling", Action.DELETE: "Deleting"}
PAST = {Action.RETRY: "Started again", Action.CANCEL: "Cancelled", Action.DELETE: "Deleted"}

NOTHING: Final[Mapping[str, Any]] = {}

app = Commands("Tasks")


@app.add()
def retry(
    cli: Cli,
    selection: Selection,
    from_step: Annotated[str | None, option("KEY", "Forget this step of a workflow and those after it.")] = None,
    from_scratch: Annotated[bool, option(None, "Forget what a workflow has recorded; for tasks given by id.")] = False,
    rate: Annotated[
        float | None, option("N", "With --all-matching: tasks that become due per second.", "--rate")
    ] = None,
) -> None:
    """Retry tasks, from zero attempts.

    A workflow resumes at the step that failed.
    With --all-matching and no --state: those that failed for good, wait for their retry, or were buried.

    Examples:
        tasklib retry 0199f1e2-7c3a-7000-8000-000000000000
        tasklib retry 0199f1e2-7c3a-7000-8000-000000000000 --from-step charge
        tasklib retry --all-matching --state failed --name send_email --dry-run
        tasklib retry --all-matching --search "connection refused" --yes
        tasklib retry --all-matching --name send_email --rate 50
    """
    if rate is not None and selection.ids:
        raise CommandFailed("--rate goes with --all-matching: tasks given by id are due at once", Exit.USAGE)
    if (from_scratch or from_step) and not selection.ids:
        wrong = "--from-step and --from-scratch go with ids: what workflows have recorded is not forgotten in bulk"
        raise CommandFailed(wrong, Exit.USAGE)
    single = {"from_step": from_step, "from_scratch": from_scratch}
    _act(cli, Action.RETRY, selection, single, {"rate": rate})


@app.add()
def cancel(cli: Cli, selection: Selection) -> None:
    """Cancel tasks that wait or run.

    Waiting ones are cancelled at once, running ones as soon as their worker has stopped them.

    Examples:
        tasklib cancel 0199f1e2-7c3a-7000-8000-000000000000
        tasklib cancel --all-matching --state delayed --tag batch=daily
    """
    _act(cli, Action.CANCEL, selection)


@app.add()
def delete(cli: Cli, selection: Selection) -> None:
    """Delete finished tasks for good.

    With --all-matching and no --state: those that failed for good or were buried.

    Examples:
        tasklib delete 0199f1e2-7c3a-7000-8000-000000000000
        tasklib delete --all-matching --state cancelled --yes
    """
    _act(cli, Action.DELETE, selection)


@app.add()
def priority(cli: Cli, number: Annotated[int, argument("N", "Higher runs first.")], selection: Selection) -> None:
    """Change the priority of tasks that have not ended.

    Examples:
        tasklib priority 9 0199f1e2-7c3a-7000-8000-000000000000
        tasklib priority 9 --all-matching --name send_email --dry-run
        tasklib priority --all-matching --name report -- -5
    """
    _check(selection, "priority", "prioritize")
    prioritize = partial(cli.service.act_on_matching, Action.PRIORITIZE, priority=number)
    if selection.ids:
        ids = [cli.service.find_id(task_id) for task_id in selection.ids]
        count = len([cli.service.act(Action.PRIORITIZE, task_id, priority=number) for task_id in ids])
    else:
        count = _change_matching(cli, selection, prioritize, f"Give {{}} priority {number}?", "Prioritizing tasks")
    verb = "Would get" if selection.dry_run else "Got"
    data = {"action": "priority", "priority": number, "dry_run": selection.dry_run, "count": count}
    cli.out.answer(data, lambda: cli.out.line(f"{verb} priority {number}: {counted(count)}."))


@app.add()
def cleanup(
    cli: Cli,
    older_than: Annotated[
        str, option("AGE", "Tasks that ended longer ago than this (30d, 12h), or before a date (2030-01-31).")
    ],
    state: Annotated[
        list[str] | None,
        option(
            "STATE",
            "completed (the default), failed, cancelled or buried; may be repeated.",
            *("--state", "-s"),
            words=("completed", "failed", "cancelled", "buried"),
        ),
    ] = None,
    name: Annotated[
        str | None, option("NAME", "Only tasks of this name, or of names like 'call*'.", "--name", "-n")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Delete tasks that ended long ago.

    It deletes in small batches, so that it blocks nothing for long.

    Examples:
        tasklib cleanup --older-than 30d
        tasklib cleanup --older-than 7d --state completed --state cancelled --name send_email
        tasklib cleanup --older-than 2030-01-31 --dry-run
    """
    age, ended = values.duration_or_moment(older_than), state or CLEANUP_STATES
    names = [None] if name is None else [each.name for each in each_name(cli.service, TaskFilter(name=name))]

    def clean_up(**how: Any) -> int:
        return sum(cli.service.cleanup(age, ended, name=each, **how) for each in names)

    if dry_run:
        count = clean_up(dry_run=True)
    else:
        # Counting them reads every finished task: worth it only for a person at a progress bar.
        total = clean_up(dry_run=True) if cli.out.shows_progress else None
        with cli.out.progress("Cleaning up", total) as on_progress:
            count = clean_up(on_progress=on_progress)
    verb = "Would delete" if dry_run else "Deleted"
    data = {"action": "cleanup", "dry_run": dry_run, "count": count}
    cli.out.answer(data, lambda: cli.out.line(f"{verb} {counted(count)}."))


def _act(
    cli: Cli,
    action: Action,
    selection: Selection,
    single: Mapping[str, Any] = NOTHING,
    matching: Mapping[str, Any] = NOTHING,
) -> None:
    """Act on tasks given by id, with what counts for `single` ones, or on all `matching`."""
    _check(selection, action, action)
    if selection.ids:
        _act_on_each(cli, action, selection.ids, **single)
        return
    act = partial(cli.service.act_on_matching, action, **matching)
    question, doing = f"{action.capitalize()} {{}}?", f"{DOING[action]} tasks"
    count, dry_run = _change_matching(cli, selection, act, question, doing), selection.dry_run

    def say() -> None:
        if not count:
            cli.out.line("No task matches; nothing to do.")
        else:
            cli.out.line(f"Would {action} {counted(count)}." if dry_run else f"{PAST[action]}: {counted(count)}.")

    cli.out.answer({"action": action, "dry_run": dry_run, "count": count}, say)


def _check(selection: Selection, command: str, verb: str) -> None:
    """Refuse a selection that names no tasks, or names them in two ways."""
    if selection.all_matching:
        wrong = "give either ids or --all-matching, not both" if selection.ids else None
    elif selection.filter != TaskFilter():
        wrong = f"add --all-matching to {verb} every task that fits these options"
    elif not selection.ids:
        wrong = f"which tasks? Give their ids, or --all-matching with options; see: tasklib {command} --help"
    else:
        single = "--dry-run goes with --all-matching; look at single tasks with: tasklib show ID"
        wrong = single if selection.dry_run else None
    if wrong is not None:
        raise CommandFailed(wrong, Exit.USAGE)


def _act_on_each(cli: Cli, action: Action, ids: list[str], **how: Any) -> None:
    """One after the other: what cannot be done is reported, and does not stop the rest."""
    done: list[Task] = []
    refused: list[dict[str, str]] = []
    for task_id in ids:
        try:
            done.append(cli.service.act(action, cli.service.find_id(task_id), **how))
        except StorageError:
            raise
        except TaskLibError as error:
            refused.append({"id": task_id, "error": type(error).__name__, "message": str(error)})

    def say() -> None:
        for task in done:
            asked = action is Action.CANCEL and task.completed_at is None
            cli.out.line(f"{'Asked its worker to stop' if asked else PAST[action]} {task.id} ({task.name})")

    cli.out.answer({"action": action, "count": len(done), "tasks": done, "errors": refused}, say)
    for each in refused[:-1]:
        cli.out.error(each["message"])
    if refused:
        raise CommandFailed(refused[-1]["message"])


def _change_matching(cli: Cli, selection: Selection, act: Callable[..., int], question: str, doing: str) -> int:
    """Act on every task that matches, if the person agrees; how many were changed, or would be."""
    filters = each_name(cli.service, selection.filter)
    matching = sum(act(each, dry_run=True) for each in filters)
    if selection.dry_run or not matching:
        return matching
    if not selection.yes and not cli.out.confirm(question.format(counted(matching))):
        raise CommandFailed("nothing was changed")
    total = 0
    with cli.out.progress(doing, matching) as on_progress:
        for each in filters:
            total += act(each, on_progress=lambda done, before=total: on_progress(before + done))
    return total


def counted(count: int) -> str:
    """`1 task`, `2,000 tasks`."""
    return f"{count:,} task{'' if count == 1 else 's'}"
