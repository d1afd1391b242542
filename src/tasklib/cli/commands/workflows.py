"""Workflows: steps and tree show them, emit tells events, answer answers questions."""

from __future__ import annotations

import json
from typing import Annotated, Any

from tasklib.cli.command import Cli, Commands
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.options.declare import argument, option
from tasklib.core.codec import dumps_to_show

app = Commands("Workflows")

TaskId = Annotated[str, argument("ID", "The task's id, or a unique part of it.")]


@app.add()
def steps(cli: Cli, task_id: TaskId) -> None:
    """Show what a workflow has recorded: steps, sleeps, waits, questions and children.

    Examples:
        tasklib steps 0199f1e2-7c3a-7000-8000-000000000000
    """
    found = cli.service.workflows.steps(cli.service.find_id(task_id))

    def say() -> None:
        for step in found:
            what = step.question or (dumps_to_show(step.error) if step.error else dumps_to_show(step.value))
            cli.out.line(f"{step.number:>4}  {step.kind:<5} {step.state:<6} {step.key}  {what[:100]}")

    cli.out.answer_list({"steps": found}, say, "This task has recorded nothing.")


@app.add()
def tree(cli: Cli, task_id: TaskId) -> None:
    """Show what is before a task in its flow, and the children it has waited for.

    Examples:
        tasklib tree 0199f1e2-7c3a-7000-8000-000000000000
    """
    found = cli.service.workflows.tree(cli.service.find_id(task_id))

    def say() -> None:
        cli.out.line(f"{found['name']} {found['id']} {found['state']}")
        for each in found["before"]:
            cli.out.line(f"  after {each['name']} {each['id']} {each['state']}")
        for group in found["groups"]:
            failed = group["failed"] + group["cancelled"]
            cli.out.line(f"  {group['key']}: {group['ended']:,} of {group['total']:,} ended, {failed:,} failed")
            for child in group["children"]:
                cli.out.line(f"    {child['name']} {child['id']} {child['state']}")

    cli.out.answer(found, say)


@app.add()
def emit(
    cli: Cli,
    name: Annotated[str, argument("NAME", "The event's name.")],
    payload: Annotated[str | None, argument("JSON", "What it tells.")] = None,
    to: Annotated[str | None, option("ID", "The one task that it is for; without it, whoever waits.")] = None,
    withdraw: Annotated[bool, option("", "Forget the fact of this name.")] = False,
) -> None:
    """Tell an event to whoever waits for it, now or later, or to one task.

    Examples:
        tasklib emit shipped:42 '{"tracking": "XY"}'
        tasklib emit approval '{"ok": true}' --to 0199f1e2-7c3a-7000-8000-000000000000
        tasklib emit shipped:42 --withdraw
    """
    target = None if to is None else cli.service.find_id(to)
    if withdraw and (payload is not None or to is not None):
        raise CommandFailed("--withdraw forgets a fact: give its name alone", Exit.USAGE)
    if withdraw:
        new = cli.service.queue.emit(name, withdraw=True)
        cli.out.answer({"withdrawn": new}, lambda: cli.out.line("Withdrawn." if new else f"No fact {name} is known."))
        return
    new = cli.service.queue.emit(name, _json(payload), to=target)
    said = f"Told {name}." if new else f"{name} was told before; the first counts."
    cli.out.answer({"new": new}, lambda: cli.out.line(said))


@app.add()
def answer(
    cli: Cli,
    task_id: TaskId,
    key: Annotated[str, argument("KEY", "The question's key, as tasklib steps shows it.")],
    value: Annotated[str, argument("JSON", "The answer.")],
) -> None:
    """Answer a question that a workflow asks; the first answer counts.

    Examples:
        tasklib answer 0199f1e2-7c3a-7000-8000-000000000000 approval '{"ok": true}'
    """
    cli.service.queue.answer(cli.service.find_id(task_id), key, _json(value))
    cli.out.answer({"answered": True}, lambda: cli.out.line("Answered."))


def _json(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandFailed(f"{text[:60]!r} is not JSON ({error}); texts need quotes: '\"yes\"'", Exit.USAGE) from error
