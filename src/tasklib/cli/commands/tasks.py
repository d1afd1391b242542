"""Looking at tasks: list, show, explain."""

from __future__ import annotations

from typing import Annotated

from tasklib.cli.command import Cli, Commands
from tasklib.cli.name_patterns import page_of
from tasklib.cli.options.common import Name, Search, States, Tags, task_filter
from tasklib.cli.options.declare import argument, option
from tasklib.cli.show.tasks import show_explanation, show_task, show_tasks

SUBMIT_ONE = "Submit one: tasklib submit send_email to=ada@example.com"

app = Commands("Tasks")

TaskId = Annotated[str, argument("ID", "The task's id, or a unique part of it.")]


@app.add(name="list")
def list_tasks(
    cli: Cli,
    state: States = None,
    name: Name = None,
    tag: Tags = None,
    search: Search = None,
    limit: Annotated[
        int, option("N", "Tasks to show at most.", "--limit", "-l", min=1, max=10_000, show_default=True)
    ] = 50,
    before: Annotated[str | None, option("ID", "Start after this task, the last of the previous page.")] = None,
) -> None:
    """List tasks, newest first.

    Examples:
        tasklib list --state failed --state buried
        tasklib list --name 'send_*'
        tasklib list --name send_email --tag batch=daily --search ada@example.com
        tasklib list --search 'args.order_id:42 duration:>5s worker:web-1 release:1.4.2'
        tasklib list --limit 20 --before 0199f1e2-7c3a-7000-8000-000000000000
    """
    which = task_filter(state, name, tag, search)
    start = None if before is None else str(cli.service.find_id(before))
    with cli.out.progress("Searching", 100, mostly_quick=True) as on_progress:
        page = page_of(cli.service, which, limit, start, lambda part: on_progress(int(part * 100)))

    def say() -> None:
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


@app.add()
def show(cli: Cli, task_id: TaskId) -> None:
    """Show everything about one task: input, attempts, result and error.

    Examples:
        tasklib show 0199f1e2-7c3a-7000-8000-000000000000
        tasklib show 0199f1e2..9a3c1f
    """
    task = cli.service.get(cli.service.find_id(task_id))
    cli.out.answer(task, lambda: show_task(cli.out, task, cli.now()))


@app.add()
def explain(cli: Cli, task_id: TaskId) -> None:
    """Say why a task is not running, and what to do about it.

    Examples:
        tasklib explain 0199f1e2-7c3a-7000-8000-000000000000
    """
    explanation = cli.service.explain(cli.service.find_id(task_id))
    task = explanation.task
    data = {"id": task.id, "name": task.name, "state": task.state, "reasons": explanation.reasons}
    cli.out.answer(data, lambda: show_explanation(cli.out, explanation, cli.now()))
