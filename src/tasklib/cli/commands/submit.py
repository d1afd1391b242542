"""Submitting tasks, one or a whole file of them: submit."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tasklib.cli.command import Cli, Commands
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.options import values
from tasklib.cli.options.submit import FromFile, RunOptions, TaskToSubmit, WaitOptions
from tasklib.cli.show.output import shortened
from tasklib.cli.show.tasks import show_task
from tasklib.core.texts.suggestion import did_you_mean
from tasklib.errors import PermissionDenied, WaitTimeout

if TYPE_CHECKING:
    from tasklib.core.task import Task
    from tasklib.core.task_id import TaskId

app = Commands("Tasks")


@dataclass(frozen=True, slots=True)
class Unknown:
    """No live worker defines the task."""

    text: str
    live: bool
    """Whether there is a worker at all."""


@app.add(creates=True)
def submit(cli: Cli, task: TaskToSubmit, run: RunOptions, wait: WaitOptions, source: FromFile) -> None:
    """Submit a task, or many from a file.

    A file in JSON Lines has one task per line: {"name": …, "payload": {…}, "priority": …} and the like, or the payload
    alone if NAME is given. The first line of a CSV file names the arguments; an empty cell leaves its argument out.
    Lines are stored 2,000 at a time; if any of them is wrong, none of those is stored and the command stops.

    Examples:
        tasklib submit send_email to=ada@example.com subject="Hello Ada" copies=2
        tasklib submit report --payload '{"month": "2030-01"}' --delay 1h --unique-key report-2030-01
        tasklib submit resize --payload @picture.json --wait
        tasklib submit send_email --file people.csv --priority 5 --tag batch=daily
        tasklib submit --file tasks.jsonl --dry-run
    """
    if task.name is not None and "=" in task.name:
        raise CommandFailed(f"the task's name comes first, as in: tasklib submit NAME {task.name}", Exit.USAGE)
    options = run.options(waits=wait.waits)
    if task.app_module is None and cli.config.database_url in ("sqlite://", "sqlite:///:memory:"):
        raise CommandFailed(
            f"{cli.config.database_url} is in the memory of this command, and the task would be gone when it ends; "
            "name a database that stays, as in --database-url sqlite:///tasks.db",
            Exit.USAGE,
        )
    if task.app_module is not None:
        _use_tasks_of(cli, task.app_module)
    if source.file is None:
        _submit_one(cli, task, options, wait, dry_run=source.dry_run)
    else:
        _submit_file(cli, source.file, source, task, options, wait)


def _use_tasks_of(cli: Cli, module: str) -> None:
    from tasklib.cli.discovery import find_queue
    from tasklib.service.service import QueueService

    cli.service = QueueService(find_queue([module], cli.given_url, cli.url))


def _require_defined(cli: Cli, module: str, name: str) -> None:
    """Refuse a name that the module does not define: --app is given to have the arguments checked."""
    known = sorted(cli.service.queue.registry.names())
    if name not in known:
        hint = did_you_mean(name, known, otherwise=f"it defines {shortened(', '.join(known) or 'none', 200)}")
        raise CommandFailed(f"{module} defines no task {name}; {hint}", Exit.USAGE)


def _submit_one(cli: Cli, task: TaskToSubmit, options: dict[str, Any], wait: WaitOptions, *, dry_run: bool) -> None:
    if task.name is None:
        raise CommandFailed(
            "which task? Give its name, as in: tasklib submit send_email to=ada@example.com", Exit.USAGE
        )
    if dry_run:
        raise CommandFailed("--dry-run goes with --file", Exit.USAGE)
    if task.app_module is not None:
        _require_defined(cli, task.app_module, task.name)
    task_id = cli.service.queue.enqueue(task.name, task.read_payload(), **options)
    unknown = _unknown(cli, task.name)
    if wait.waits:
        _wait(cli, task.name, task_id, wait.wait_timeout, unknown)
    else:
        _say_submitted(cli, task.name, task_id)
        if unknown and unknown.live:
            cli.out.note(unknown.text)


def _submit_file(
    cli: Cli, file: str, source: FromFile, task: TaskToSubmit, options: dict[str, Any], wait: WaitOptions
) -> None:
    from tasklib.cli.submit_file import submit_file

    if task.arguments or task.payload is not None or wait.waits:
        raise CommandFailed("--file does not go with arguments, --payload or --wait", Exit.USAGE)
    kind, first = source.file_format, source.from_line
    submit_file(cli, file, name=task.name, options=options, kind=kind, from_line=first, dry_run=source.dry_run)


def _unknown(cli: Cli, name: str) -> Unknown | None:
    """What to say if no live worker defines the task: the name is misspelt, or its worker is not started yet.

    None for a role that may submit and not see workers: the task is stored.
    """
    try:
        live = [worker for worker in cli.service.queue.workers() if worker.alive]
    except PermissionDenied:
        return None
    known = sorted({each for worker in live for each in worker.names})
    if name in known:
        return None
    if not live:
        return Unknown(
            f"no worker is alive, so {name} does not run yet; start one: tasklib worker app.tasks", live=False
        )
    hint = did_you_mean(name, known, otherwise=f"they know {shortened(', '.join(known) or 'none', 200)}")
    return Unknown(f"no live worker knows {name}, so it waits until one does; {hint}", live=True)


def _say_submitted(cli: Cli, name: str, task_id: TaskId) -> None:
    def say() -> None:
        if task_id.created:
            cli.out.line(f"Submitted {name} {task_id}")
        else:
            cli.out.line(f"{name} {task_id} has that unique key and is not finished; no new task was stored")
        if cli.out.is_terminal:
            cli.out.line(f"Follow it: tasklib show {task_id}", "dim")

    cli.out.answer({"id": task_id, "name": name, "created": task_id.created}, say)


def _wait(cli: Cli, name: str, task_id: TaskId, timeout: str | None, unknown: Unknown | None) -> None:
    """Wait and show the task; that no worker defines it is said at once if the wait has no end, else at its end."""
    seconds = None if timeout is None else values.duration(timeout).total_seconds()
    if sys.stderr.isatty():
        cli.out.note(f"waiting for {name} {task_id}; Ctrl-C stops waiting, not the task")
    if unknown and seconds is None:
        cli.out.note(unknown.text)
    try:
        task: Task = cli.service.shown(cli.service.queue.wait(task_id, seconds))
    except WaitTimeout as error:
        said = f"task {task_id} was still {error.state} after {timeout} and goes on"
        why = unknown.text if unknown else f"ask why: tasklib explain {task_id}"
        raise CommandFailed(f"{said}; {why}", Exit.TIMEOUT) from error
    data = {"id": task_id, "name": name, "created": task_id.created, "task": task}
    cli.out.answer(data, lambda: show_task(cli.out, task, cli.now()))
    if task.state != "completed":
        raise CommandFailed(f"{name} {task_id} ended as {task.state}")
