"""Flows as children of workflows: all their tasks belong to the workflow, which waits for the last of them."""

from __future__ import annotations

from typing import Any

import pytest

from tasklib import AsyncTaskContext, TaskContext, TaskFailed, TaskState
from tests.contract.test_groups import drain
from tests.contract.test_steps import Calls, calls, finish
from tests.fixtures.queues import Face

__all__ = ["calls"]


@pytest.fixture
def add(queue: Face, calls: Calls) -> Any:
    @queue.task(max_retries=0)
    def add(a: int, b: int = 0) -> int:
        calls.note((a, b))
        if a < 0:
            raise ValueError("negative")
        return a + b

    return add


def test_a_flow_runs_once_and_gives_the_results_of_its_tasks(queue: Face, add: Any, calls: Calls):
    @queue.task
    async def parent(ctx: AsyncTaskContext) -> list[int]:
        flow = queue.plain.flow("sums")
        one, two = flow.add(add.bind(1)), flow.add(add.bind(2))
        both = flow.add(add.bind(one.result, two.result))
        flow.add(add.bind(9), after=[both], run_if="failure")
        done = await ctx.run(flow)
        assert (len(done), done.failed, done.cancelled) == (4, 0, 1)
        await ctx.sleep(60)
        return [value async for value in done.results()]

    task_id = parent.options(priority=5).submit()
    drain(queue)
    queue.advance(60)
    drain(queue)

    assert queue.read(task_id).result == {"value": [1, 2, 3]}
    assert sorted(calls) == [(1, 0), (1, 2), (2, 0)]
    assert {(task.priority, task.tags["flow"]) for task in queue.list(name="add")} == {(5, "sums")}


def test_a_plain_function_runs_one_flow_many_times(queue: Face, add: Any):
    flow = queue.plain.flow("again")
    flow.add(add.bind(flow.add(add.bind(1)).result, 5))

    @queue.task
    def parent(ctx: TaskContext) -> list[int]:
        return [value for _ in range(3) for value in ctx.run(flow).results()]

    task_id = parent.submit()
    drain(queue)

    assert queue.read(task_id).result == {"value": [1, 6] * 3}
    assert queue.count(name="add") == 6


def test_a_task_that_fails_raises_in_the_workflow_after_all_have_ended(queue: Face, add: Any):
    @queue.task(max_retries=0)
    def parent(ctx: TaskContext) -> None:
        flow = queue.plain.flow("sad")
        bad = flow.add(add.bind(-1))
        flow.add(add.bind(bad.result))
        flow.add(add.bind(7), after=[bad], run_if="failure")
        with pytest.raises(TaskFailed) as failed:
            ctx.run(flow)
        raise failed.value

    task = finish(queue, parent.submit())
    drain(queue)
    task = queue.read(task.id)

    assert task.state is TaskState.FAILED
    assert "ValueError: negative" in task.error
    assert sorted(each.state.value for each in queue.list(name="add")) == ["cancelled", "completed", "failed"]


def test_its_tasks_are_cancelled_with_the_workflow(queue: Face, add: Any):
    @queue.task
    async def parent(ctx: AsyncTaskContext) -> None:
        flow = queue.plain.flow("late")
        flow.add(add.bind(flow.add(add.options(delay_seconds=3600).bind(1)).result))
        await ctx.run(flow)

    task_id = parent.submit()
    drain(queue)
    assert queue.read(task_id).waits_for == "children late"
    queue.cancel(task_id)
    drain(queue)

    assert {task.state for task in queue.list()} == {TaskState.CANCELLED}
    assert queue.sql("SELECT * FROM tasklib_tallies") == []


def test_a_cancelled_task_of_it_raises_too(queue: Face, add: Any):
    @queue.task(max_retries=0)
    async def parent(ctx: AsyncTaskContext) -> None:
        flow = queue.plain.flow("late")
        flow.add(add.options(delay_seconds=3600).bind(1))
        await ctx.run(flow)

    task_id = parent.submit()
    drain(queue)
    (node,) = queue.list(name="add")
    queue.cancel(node.id)
    drain(queue)

    assert queue.read(task_id).state is TaskState.FAILED


def test_an_empty_flow_is_refused(queue: Face):
    @queue.task(max_retries=0)
    def parent(ctx: TaskContext) -> None:
        ctx.run(queue.plain.flow("empty"))

    assert "has no tasks" in finish(queue, parent.submit()).error
