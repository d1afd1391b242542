"""Commands for workflows: `steps` and `tree` show them, `emit`, `answer` and `replay` act on them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasklib.cli.command import Cli, Commands
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.options.declare import argument, option
from tasklib.core.codec import dumps_to_show

if TYPE_CHECKING:
    from tasklib.service.service import QueueService
    from tasklib.service.workflows.replay import Case

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
            undo = f"  undo: {step.undo}" if step.undo else ""
            cli.out.line(f"{step.number:>4}  {step.kind:<5} {step.state:<6} {step.key}  {what[:100]}{undo}")

    cli.out.answer_list({"steps": found}, say, "This task has recorded nothing.")


@app.add()
def tree(cli: Cli, task_id: TaskId) -> None:
    """Show the tasks before a task in its flow, and the children it has waited for.

    Examples:
        tasklib tree 0199f1e2-7c3a-7000-8000-000000000000
    """
    found = cli.service.workflows.tree(cli.service.find_id(task_id))

    def say() -> None:
        cli.out.line(f"{found['name']} {found['id']} {found['state']}")
        if parent := found["parent"]:
            cli.out.line(f"  child of {parent['name']} {parent['id']} {parent['state']}")
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
    payload: Annotated[str | None, argument("JSON", "The event's payload.")] = None,
    to: Annotated[str | None, option("ID", "Send it to this task only.  [default: to all that wait]")] = None,
    withdraw: Annotated[bool, option("", "Withdraw the fact of this name.")] = False,
) -> None:
    """Emit an event to every task that waits for it, now or later, or to one task.

    Examples:
        tasklib emit shipped:42 '{"tracking": "XY"}'
        tasklib emit approval '{"ok": true}' --to 0199f1e2-7c3a-7000-8000-000000000000
        tasklib emit shipped:42 --withdraw
    """
    target = None if to is None else cli.service.find_id(to)
    if withdraw and (payload is not None or to is not None):
        raise CommandFailed("--withdraw takes the name of a fact and nothing else", Exit.USAGE)
    if withdraw:
        new = cli.service.queue.emit(name, withdraw=True)
        cli.out.answer({"withdrawn": new}, lambda: cli.out.line("Withdrawn." if new else f"No fact {name} is known."))
        return
    new = cli.service.queue.emit(name, _json(payload), to=target)
    said = f"Emitted {name}." if new else f"{name} was emitted before; the first event counts."
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


@app.add()
def replay(
    cli: Cli,
    modules: Annotated[list[str], argument("MODULE", "Modules that define the tasks, as for tasklib worker.")],
    waiting: Annotated[bool, option(None, "Replay every waiting workflow.")] = False,
    task: Annotated[list[str] | None, option("ID", "Replay this one; may be repeated.")] = None,
    file: Annotated[Path | None, option("PATH", "Replay a file written with --save; needs no database.")] = None,
    save: Annotated[
        Path | None, option("PATH", "Write the recorded steps to this file, unmasked, one workflow per line.")
    ] = None,
) -> None:
    """Run today's code against what workflows have recorded, executing no step, and name the first difference.

    The functions run from the top; recorded steps return their values, and the function stops at the first call that
    is not recorded. What it submits outside of steps is discarded. Exits with 1 if the code would park or fail a
    workflow.

    Examples:
        tasklib replay app.tasks --waiting
        tasklib replay app.tasks --waiting --save recorded.jsonl
        tasklib replay app.tasks --file recorded.jsonl
    """
    from tasklib.cli.discovery import find_queue
    from tasklib.service.service import QueueService, as_data
    from tasklib.testing import isolated

    if (waiting or bool(task)) is (file is not None):
        raise CommandFailed("say what to replay: --waiting, --task ID, or --file PATH", Exit.USAGE)
    queue = find_queue(modules, cli.given_url, cli.url)
    service = QueueService(queue)
    cases = _cases(service, file, task or ())
    if save is not None:
        save.write_text("".join(f"{case.as_text()}\n" for case in cases), "utf-8")
    children = service.replays.children()
    found: list[dict[str, Any]] = []
    with isolated(queue):
        for case in cases:
            replayed = service.replays.replay(case, children)
            answer = {} if replayed is None else as_data(replayed)
            found.append({"id": case.task.id, "name": case.task.name, "known": replayed is not None, **answer})
    differing = sum(each.get("fits") is False for each in found)
    left_out = service.replays.left_out(queue.registry.names()) if waiting else {}

    def say() -> None:
        for each in found:
            _say_replayed(cli, each)
        for name, count in left_out.items():
            cli.out.line(f"{name}: {count:,} older not replayed")
        cli.out.line(f"{len(found):,} replayed, {differing:,} differ." if found else "No workflow waits.")

    cli.out.answer({"replayed": found, "differing": differing, "left_out": left_out}, say)
    if differing:
        raise typer.Exit(Exit.FAILED)


def _cases(service: QueueService, file: Path | None, task_ids: Sequence[str]) -> list[Case]:
    from tasklib.service.workflows.replay import Case

    if file is not None:
        try:
            lines = file.read_text("utf-8").splitlines()
        except OSError as error:
            raise CommandFailed(f"cannot read {file}: {error.strerror}", Exit.USAGE) from error
        return [Case.from_text(line) for line in lines if line.strip()]
    if task_ids:
        return [service.replays.case(service.find_id(each)) for each in task_ids]
    return list(service.replays.waiting(service.queue.registry.names()))


def _say_replayed(cli: Cli, each: Mapping[str, Any]) -> None:
    head = f"{each['name']} {each['id']}"
    if not each["known"]:
        cli.out.line(f"?  {head}: no task of that name is defined here")
    elif each["fits"]:
        where = f"goes on at {each['key']!r}" if each["key"] else "goes on"
        cli.out.line(f"ok {head}: {where}")
    else:
        cli.out.line(f"!! {head}: differs at {each['key']!r}")
        cli.out.line(f"     recorded: {each['recorded'] or 'nothing'}")
        cli.out.line(f"     the code: {each['asked']}")
    for note in each.get("notes", ()):
        cli.out.line(f"     note: {note}")


def _json(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandFailed(f"{text[:60]!r} is not JSON ({error}); texts need quotes: '\"yes\"'", Exit.USAGE) from error
