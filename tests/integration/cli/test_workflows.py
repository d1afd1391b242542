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
        return [told, sure, ctx.run(child.bind(3))]

    task_id = str(workflow.submit())
    queue.process_batch()
    assert "waiting" in tasklib.ok("list")
    assert tasklib.ok("emit", "number", "5") == "Told number.\n"
    assert tasklib.ok("emit", "number", "6") == "number was told before; the first counts.\n"
    queue.process_batch()
    assert "Are you sure?" in tasklib.ok("steps", task_id)
    assert tasklib.ok("answer", task_id, "sure", "true") == "Answered.\n"
    while queue.process_batch():
        pass

    assert [step["key"] for step in tasklib.json("steps", task_id)["steps"]] == ["number", "sure", "child"]
    assert "child: 1 of 1 ended, 0 failed" in tasklib.ok("tree", task_id)
    assert tasklib.run("emit", "number", "1", "--withdraw").code == 2
    assert tasklib.run("emit", "number", "--withdraw", "--to", task_id).code == 2
    assert tasklib.ok("emit", "number", "--withdraw") == "Withdrawn.\n"
    assert tasklib.run("emit", "number", "{nonsense").code == 2
