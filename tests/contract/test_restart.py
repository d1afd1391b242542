"""A task that restarts continues as new under its id: other arguments, no steps, attempts from zero."""

from __future__ import annotations

from typing import Any

import pytest

from tasklib import Abort, AsyncTaskContext, TaskContext, TaskState
from tasklib.errors import ConfigurationError, InvalidArguments
from tasklib.storage.operations.workflows.steps import list_steps
from tests.contract.test_groups import drain
from tests.contract.test_steps import Calls, calls, finish
from tests.fixtures.queues import Face

__all__ = ["calls"]


def test_a_coroutine_continues_as_new_under_its_id(queue: Face, calls: Calls):
    @queue.task
    async def agent(ctx: AsyncTaskContext, goal: str, left: int) -> str:
        await ctx.step(calls.note, (goal, left))
        await ctx.sleep(60)
        if left:
            raise agent.restart(goal, left=left - 1)
        return goal

    task_id = agent.options(priority=3, tags={"a": 1}).submit("sum up", 2)
    task = finish(queue, task_id)

    assert (task.state, task.result, task.kwargs) == (
        TaskState.COMPLETED,
        {"value": "sum up"},
        {"goal": "sum up", "left": 0},
    )
    assert (task.attempts, task.retry_count, task.priority, task.tags) == (1, 0, 3, {"a": 1})
    assert [entry.outcome for entry in task.history] == ["restarted", "restarted", "completed"]
    assert list(calls) == [("sum up", 2), ("sum up", 1), ("sum up", 0)]
    assert [step.key for step in queue.do(lambda: list_steps(task_id))] == ["note", "sleep"]
    assert queue.count() == 1


def test_a_plain_function_does_too_and_its_version_goes_on(queue: Face):
    seen: list[tuple[int, int, int]] = []

    @queue.task(max_retries=2)
    def count(ctx: TaskContext, n: int = 0) -> int:
        seen.append((n, ctx.task.attempts, ctx.task.version))
        if n == 0 and ctx.task.attempts == 1:
            raise ValueError("once")
        if n < 2:
            raise count.restart(n + 1)
        return n

    task = finish(queue, count.submit())

    assert task.result == {"value": 2}
    assert [each[:2] for each in seen] == [(0, 1), (0, 2), (1, 1), (2, 1)]
    assert [each[2] for each in seen] == sorted({each[2] for each in seen})
    assert (task.error, task.retry_count) == (None, 0)


def test_a_restart_checks_its_arguments(queue: Face):
    @queue.task(max_retries=0)
    async def agent(ctx: AsyncTaskContext, left: int) -> None:
        raise agent.restart(left="many")

    task = finish(queue, agent.submit(1))

    assert task.state is TaskState.FAILED
    assert "InvalidArguments" in task.error
    assert task.kwargs == {"left": 1}
    with pytest.raises(InvalidArguments):
        agent.restart("many")
    with pytest.raises(ConfigurationError, match="keeps its options"):
        agent.options(priority=1).restart(2)


def test_a_task_restarts_only_itself(queue: Face):
    @queue.task
    def other() -> None: ...

    @queue.task
    def agent() -> None:
        raise other.restart()

    task = finish(queue, agent.submit())

    assert (task.state, task.attempts) == (TaskState.FAILED, 1)
    assert "raised the restart of 'other'" in task.error


def test_a_restart_is_raised_and_not_returned(queue: Face):
    @queue.task
    def again(n: int) -> Any:
        return again.restart(n + 1)

    ended = finish(queue, again.submit(1))

    assert (ended.state, ended.attempts) == (TaskState.FAILED, 1)
    assert "the task returned the exception Restart" in (ended.error or "")


def test_a_step_may_restart_the_task(queue: Face, calls: Calls):
    @queue.task
    def agent(ctx: TaskContext, n: int) -> int:
        def look() -> int:
            if n:
                raise agent.restart(n - 1)
            return 7

        return ctx.step(look)

    assert finish(queue, agent.submit(1)).result == {"value": 7}


def test_a_task_that_was_cancelled_meanwhile_does_not_restart(queue: Face):
    @queue.task
    def agent(ctx: TaskContext, n: int) -> None:
        queue.plain.cancel(ctx.task.id)
        raise agent.restart(n + 1)

    task_id = agent.submit(1)
    queue.process_batch()

    task = queue.read(task_id)
    assert (task.state, task.kwargs) == (TaskState.CANCELLED, {"n": 1})


def test_children_of_the_run_before_are_cancelled_and_mean_nothing_to_the_next(queue: Face):
    @queue.task
    async def child(n: int) -> int:
        return n

    @queue.task
    async def parent(ctx: AsyncTaskContext, n: int) -> int:
        if n:
            found = await ctx.options(name="child").run(child.bind(n))
            try:
                await ctx.options(name="late").run(child.options(delay_seconds=3600).bind(9), timeout_seconds=60)
            except Exception as error:
                raise parent.restart(0) from error
            return found
        return await ctx.options(name="late").run(child.bind(5))

    task_id = parent.submit(1)
    drain(queue)
    queue.advance(61)
    drain(queue)

    assert queue.read(task_id).result == {"value": 5}
    states = sorted((task.kwargs["n"], task.state.value) for task in queue.list(name="child"))
    assert states == [(1, "completed"), (5, "completed"), (9, "cancelled")]
    assert queue.sql("SELECT kind, key FROM tasklib_groups") == [{"kind": "run", "key": "late"}]
    assert queue.sql("SELECT * FROM tasklib_tallies") == []


def test_a_child_that_restarts_has_not_ended_for_its_parent(queue: Face):
    @queue.task
    def child(n: int) -> int:
        if n:
            raise child.restart(n - 1)
        return 7

    @queue.task
    def parent(ctx: TaskContext) -> int:
        return ctx.run(child.bind(3))

    task_id = parent.submit()
    drain(queue)

    assert queue.read(task_id).result == {"value": 7}
    assert queue.count(name="child") == 1


def test_no_error_hook_hears_of_a_restart(queue: Face):
    heard: list[Any] = []
    queue.plain.on_error(lambda ctx, error: heard.append(error))

    @queue.task(max_retries=0)
    def agent(n: int) -> None:
        if n:
            raise agent.restart(n - 1)
        raise Abort("the end")

    finish(queue, agent.submit(1))

    assert [str(error) for error in heard] == ["the end"]
