"""Budgets: tokens that workflows spend once, over all workers; who is short of them waits without a slot."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from tasklib import AsyncTaskContext, ConfigurationError, TaskContext, TaskQueue, TaskState
from tasklib.errors import ClaimLost
from tasklib.storage.operations.limits import budgets
from tasklib.storage.operations.workflows.steps import list_steps
from tasklib.storage.statement import Operation, Statement
from tests.contract.test_steps import finish
from tests.fixtures.queues import Face


def left(queue: Face) -> dict[str, float]:
    """The tokens of every budget."""
    return {each.name: round(each.tokens, 3) for each in queue.do(budgets.list_budgets)}


def test_a_coroutine_spends_once_however_often_it_runs(queue: Face):
    queue.set_budget("llm-tokens", per_minute=1000)

    @queue.task
    async def workflow(ctx: AsyncTaskContext) -> str:
        await ctx.spend("llm-tokens", 400)
        await ctx.sleep(1)
        await ctx.spend("llm-tokens", 100)
        await ctx.sleep(1)
        return "done"

    task_id = workflow.submit()
    queue.process_batch()
    assert left(queue) == {"llm-tokens": 600}
    task = finish(queue, task_id)

    assert (task.state, task.result) == (TaskState.COMPLETED, {"value": "done"})
    assert left(queue) == {"llm-tokens": pytest.approx(500 + 2 * 1000 / 60, abs=0.1)}
    recorded = queue.do(lambda: list_steps(task_id))
    steps = [(step.key, step.kind, step.state, step.value) for step in recorded if step.kind == "spend"]
    assert steps == [
        ("llm-tokens", "spend", "done", {"budget": "llm-tokens", "cost": 400}),
        ("llm-tokens#2", "spend", "done", {"budget": "llm-tokens", "cost": 100}),
    ]


def test_a_plain_function_does_too(queue: Face):
    queue.set_budget("calls", per_second=5)

    @queue.task
    def workflow(ctx: TaskContext) -> int:
        ctx.spend("calls")
        ctx.options(key="two").spend("calls", 2)
        ctx.sleep(60)
        return 1

    assert finish(queue, workflow.submit()).result == {"value": 1}
    assert left(queue) == {"calls": 5}


def test_who_is_short_waits_without_a_slot_until_there_can_be_enough(queue: Face):
    queue.set_budget("llm-tokens", per_minute=6000, burst=1000)

    @queue.task
    async def workflow(ctx: AsyncTaskContext, cost: float) -> None:
        await ctx.spend("llm-tokens", cost)

    first = workflow.submit(900)
    queue.process_batch()
    second = workflow.submit(1000)
    queue.process_batch()

    task = queue.read(second)
    assert queue.read(first).state is TaskState.COMPLETED
    assert (task.state, task.waits_for, task.attempts) == (TaskState.PENDING, "budget llm-tokens", 0)
    assert (task.worker_id, task.locked_until) == (None, None)
    assert task.due_at - queue.now == timedelta(seconds=9, milliseconds=1)
    (reason,) = queue.explain(second).reasons
    assert (reason.code, reason.evidence["short"], reason.evidence["tokens"]) == ("waiting", 900, 100)
    assert "it is short of 900 llm-tokens; tries again in 9" in reason.text
    assert [found.id for found in queue.list(state="waiting")] == [second]
    assert finish(queue, second).state is TaskState.COMPLETED
    assert left(queue)["llm-tokens"] < 1


def test_many_at_once_take_no_more_than_there_is(queue: Face):
    queue.set_budget("calls", per_minute=10)

    @queue.task
    async def workflow(ctx: AsyncTaskContext) -> None:
        await ctx.spend("calls")

    for _ in range(25):
        workflow.submit()
    while queue.process_batch():
        pass

    assert (queue.count(state="completed"), queue.count(state="waiting")) == (10, 15)
    assert left(queue) == {"calls": 0}
    for _ in range(100):
        queue.advance(30)
        while queue.process_batch():
            pass
    assert queue.count(state="completed") == 25


@pytest.mark.backends("sqlite-file", "postgres")  # no other program sees a database in memory
def test_several_programs_together_take_no_more_than_there_is(queue: Face):
    with TaskQueue(queue.url) as own:
        own.set_budget("calls", per_second=1e-6, burst=50)
    taken: list[Any] = []

    def take() -> Operation[bool]:
        return bool((yield Statement("take_from_budget", {"name": "calls", "cost": 1.0})))

    def spend() -> None:
        with TaskQueue(queue.url) as own:
            taken.extend(own.database.run(take) for _ in range(25))

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (len(taken), taken.count(True)) == (100, 50)


def test_an_attempt_that_is_not_the_current_one_takes_nothing(queue: Face):
    queue.set_budget("calls", per_minute=10)
    tried: list[bool] = []

    @queue.task(max_retries=0)
    async def workflow(ctx: AsyncTaskContext) -> None:
        tried.append(True)
        task = await queue.plain.aget(ctx.task.id)
        assert task is not None
        step = {"key": "k", "number": 1, "kind": "spend", "digest": None, "tries": 1, "started_ago": 0.0}
        for version in (task.version - 1, task.version, task.version):
            made = lambda version=version: budgets.spend(str(task.id), version, step, "calls", 1.0)  # noqa: E731
            try:
                await queue.plain.database.arun(made)
            except ClaimLost:
                tried.append(True)

    assert finish(queue, workflow.submit()).state is TaskState.COMPLETED
    assert tried == [True, True]
    assert left(queue) == {"calls": 9}  # the third try found the second's record


def test_more_than_a_budget_holds_and_an_unknown_budget_are_refused(queue: Face):
    queue.set_budget("calls", per_minute=10)

    @queue.task(max_retries=0)
    async def workflow(ctx: AsyncTaskContext, budget: str, cost: float) -> None:
        await ctx.spend(budget, cost)

    much, unknown, odd = (finish(queue, workflow.submit(*args)) for args in (("calls", 11), ("no", 1), ("calls", -1)))

    assert (much.state, unknown.state, odd.state) == (TaskState.FAILED,) * 3
    assert "budget 'calls' holds at most 10 tokens, and 11 are asked for at once" in much.error
    assert "there is no budget 'no'; set it first: queue.set_budget('no'" in unknown.error
    assert "a number, 0 or more, got -1" in odd.error
    assert left(queue) == {"calls": 10}


def test_a_change_of_the_budget_wakes_who_waits(queue: Face):
    queue.set_budget("calls", per_minute=1)

    @queue.task(max_retries=0)
    async def workflow(ctx: AsyncTaskContext) -> None:
        await ctx.spend("calls")
        await ctx.options(name="again").spend("calls")

    task_id, other = workflow.submit(), workflow.submit()
    while queue.process_batch():
        pass
    assert queue.count(state="waiting") == 2
    queue.set_budget("calls", per_minute=1)
    assert queue.count(state="waiting") == 2  # the same again: nothing changes
    queue.set_budget("calls", per_second=2, burst=5)
    assert (queue.count(state="waiting"), left(queue)) == (0, {"calls": 0})
    queue.advance(2)
    while queue.process_batch():
        pass
    assert queue.read(task_id).state is TaskState.COMPLETED
    assert queue.read(other).state is TaskState.COMPLETED


@pytest.mark.parametrize("nothing", [0, None])
def test_a_removed_budget_is_unknown_to_who_waited_for_it(queue: Face, nothing: float | None):
    queue.set_budget("calls", per_minute=1)

    @queue.task(max_retries=0)
    async def workflow(ctx: AsyncTaskContext) -> None:
        await asyncio.gather(ctx.spend("calls"), ctx.spend("calls"))

    task_id = workflow.submit()
    queue.process_batch()
    assert queue.read(task_id).waits_for == "budget calls"
    queue.set_budget("calls", per_minute=nothing)
    queue.process_batch()

    assert left(queue) == {}
    assert "there is no budget 'calls'" in (queue.read(task_id).error or "")


def test_what_is_left_stays_when_a_budget_is_set_anew(queue: Face):
    queue.set_budget("calls", per_second=10, burst=100)
    queue.do(lambda: _take(90.0))
    queue.advance(2)
    queue.set_budget("calls", per_second=1, burst=50)
    assert left(queue) == {"calls": 30}
    queue.set_budget("calls", per_second=1, burst=20)
    assert left(queue) == {"calls": 20}
    queue.set_budget("calls", per_second=1, burst=200)
    assert left(queue) == {"calls": 20}


def test_a_waiting_spender_can_be_cancelled_and_takes_nothing(queue: Face):
    queue.set_budget("calls", per_minute=1)
    queue.do(lambda: _take(1.0))

    @queue.task
    def workflow(ctx: TaskContext) -> None:
        ctx.spend("calls")

    task_id = workflow.submit()
    queue.process_batch()
    queue.cancel(task_id)
    queue.advance(60)
    queue.process_batch()

    assert (queue.read(task_id).state, left(queue)) == (TaskState.CANCELLED, {"calls": 1})


@pytest.mark.parametrize(
    "name, options, said",
    [
        ("", {"per_minute": 1}, "a budget's name is a text"),
        ("x" * 201, {"per_minute": 1}, "a budget's name is a text"),
        ("calls", {"per_minute": 1, "per_second": 1}, "one of them"),
        ("calls", {"per_minute": -1}, "got -1"),
        ("calls", {"per_second": float("nan")}, "got nan"),
        ("calls", {"per_minute": "9"}, "got '9'"),
        ("calls", {"per_minute": 9, "burst": 0}, "a burst is a number of tokens above 0"),
        ("calls", {"burst": 5}, "beside a rate"),
    ],
)
def test_what_cannot_be_a_budget_is_refused(queue: Face, name: str, options: dict[str, Any], said: str):
    with pytest.raises(ConfigurationError, match=said):
        queue.set_budget(name, **options)


def _take(cost: float) -> Operation[Any]:
    return (yield Statement("take_from_budget", {"name": "calls", "cost": cost}))
