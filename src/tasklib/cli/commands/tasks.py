"""Looking at tasks: list, show, explain."""

from __future__ import annotations

from typing import Annotated

import typer

from tasklib.cli.command import Cli, command
from tasklib.cli.name_patterns import page_of
from tasklib.cli.options.common import Name, Search, States, Tags, task_filter

GROUP = "Tasks"
SUBMIT_ONE = "Submit one: tasklib submit send_email to=ada@example.com"

app = typer.Typer()

TaskId = Annotated[str, typer.Argument(metavar="ID", help="The task's id, or a unique part of it.")]


@command(
    app,
    "list",
    group=GROUP,
    examples="""
    tasklib list --state failed --state buried
    tasklib list --name 'send_*'
    tasklib list --name send_email --tag batch=daily --search ada@example.com
    tasklib list --limit 20 --before 0199f1e2-7c3a-7000-8000-000000000000
    """,
)
def list_tasks(
    cli: Cli,
    state: States = None,
    name: Name = None,
    tag: Tags = None,
    search: Search = None,
    limit: Annotated[
        int, typer.Option("--limit", "-l", metavar="N", min=1, max=10_000, help="Tasks to show at most.")
    ] = 50,
    before: Annotated[
        str | None, typer.Option(metavar="ID", help="Start after this task, the last of the previous page.")
    ] = None,
) -> None:
    """List tasks, newest first."""
    which = task_filter(state, name, tag, search)
    page = page_of(cli.service, which, limit, None if before is None else str(cli.service.find_id(before)))

    def say() -> None:
        from tasklib.cli.show.tasks import show_tasks

        if page.tasks:
            show_tasks(cli.out, page.tasks, cli.now())
        elif any((state, name, tag, search, before)):
            cli.out.line("No task matches. Without options, tasklib list shows all.")
        else:
            cli.out.line(f"No tasks yet. {SUBMIT_ONE}")
        if page.next is not None:
            cli.out.line()
            cli.out.line(f"There are more. Next page: --before {page.next}")

    cli.out.answer(page, say)


@command(
    app,
    "show",
    group=GROUP,
    examples="tasklib show 0199f1e2-7c3a-7000-8000-000000000000\ntasklib show 0199f1e2..9a3c1f",
)
def show(cli: Cli, task_id: TaskId) -> None:
    """Show everything about one task: input, attempts, result and error."""
    task = cli.service.get(cli.service.find_id(task_id))

    def say() -> None:
        from tasklib.cli.show.tasks import show_task

        show_task(cli.out, task, cli.now())

    cli.out.answer(task, say)


@command(app, "explain", group=GROUP, examples="tasklib explain 0199f1e2-7c3a-7000-8000-000000000000")
def explain(cli: Cli, task_id: TaskId) -> None:
    """Say why a task is not running, and what to do about it."""
    explanation = cli.service.explain(cli.service.find_id(task_id))

    def say() -> None:
        from tasklib.cli.show.tasks import show_explanation

        show_explanation(cli.out, explanation, cli.now())

    task = explanation.task
    data = {"id": task.id, "name": task.name, "state": task.state, "reasons": explanation.reasons}
    cli.out.answer(data, say)
