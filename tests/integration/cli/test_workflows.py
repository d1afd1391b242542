"""steps, tree, emit and answer."""

from __future__ import annotations

import pytest

from tasklib import TaskContext, TaskQueue
from tests.integration.cli.conftest import CommandLine

pytestmark = pytest.mark.backends("sqlite-file")


def test_a_workflow_on_the_command_line(tasklib: CommandLine, queue: TaskQueue) -> None:
    @queue.task
    def child(n: int) -> int:
        return n

    @queue.task
    def workflow(ctx: TaskContext) -> list[object]:
        told = ctx.wait("number", int)
        sure = ctx.wait("sure", bool, ask="Are you sure?")
        return [told, sure, ctx.options(undo=child.bind(0)).run(child.bind(3))]

    task_id = str(workflow.submit())
    queue.process_batch()
    (line,) = [each for each in tasklib.ok("list").splitlines() if task_id in each]
    assert "waiting" in line
    assert "no due time" in line
    assert tasklib.ok("emit", "number", "5", "--to", task_id) == "Emitted number.\n"
    assert tasklib.ok("emit", "number", "4") == "Emitted number.\n"
    assert tasklib.ok("emit", "number", "6") == "number was emitted before; the first event counts.\n"
    queue.process_batch()
    assert "Are you sure?" in tasklib.ok("steps", task_id)
    assert tasklib.ok("answer", task_id, "sure", "true") == "Answered.\n"
    while queue.process_batch():
        pass

    recorded = tasklib.json("steps", task_id)["steps"]
    assert [(step["key"], step["undo"]) for step in recorded] == [("number", None), ("sure", None), ("child", "child")]
    assert tasklib.ok("steps", task_id).endswith("  undo: child\n")
    assert "child: 1 of 1 ended, 0 failed" in tasklib.ok("tree", task_id)
    assert tasklib.run("emit", "number", "1", "--withdraw").code == 2
    assert tasklib.run("emit", "number", "--withdraw", "--to", task_id).code == 2
    assert tasklib.ok("emit", "number", "--withdraw") == "Withdrawn.\n"
    assert tasklib.run("emit", "number", "{nonsense").code == 2


def test_a_retry_resumes_or_begins_from_scratch(tasklib: CommandLine, queue: TaskQueue) -> None:
    ran: list[str] = []

    def note(what: str) -> str:
        ran.append(what)
        return what

    def fails() -> None:
        raise ValueError("unlucky")

    @queue.task(context=True, max_retries=0)
    def workflow(ctx: TaskContext) -> None:
        ctx.step(note, "first")
        ctx.step(fails)

    task_id = str(workflow.submit())
    queue.process_batch()
    for options, count in (((), 1), (("--from-scratch",), 2), (("--from-step", "note"), 3)):
        assert "Started again" in tasklib.ok("retry", task_id, *options)
        queue.process_batch()
        assert ran.count("first") == count
    assert "go with ids" in tasklib.fails(2, "retry", "--all-matching", "--from-scratch")
