"""Why a workflow is not running, in words, for every kind of wait."""

from __future__ import annotations

from typing import Any

import pytest

from tasklib import AsyncTaskContext
from tests.fixtures.queues import Face


@pytest.fixture
def part(queue: Face) -> Any:
    @queue.task(max_retries=0)
    async def part(n: int) -> int:
        if n == 13:
            raise ValueError("unlucky")
        return n

    return part


def explained(queue: Face, work: Any, **arguments: Any) -> str:
    task_id = work.submit(**arguments)
    queue.process_batch()
    return str(queue.explain(task_id))


def test_a_sleep_and_an_event(queue: Face) -> None:
    @queue.task
    async def sleeper(ctx: AsyncTaskContext) -> None:
        await ctx.sleep(3600)

    @queue.task
    async def waiter(ctx: AsyncTaskContext, names: list[str]) -> None:
        await ctx.wait(names, int, timeout_seconds=7200)

    assert explained(queue, sleeper) == "it sleeps until 2030-01-01T13:00:00+00:00, in 60 min"
    said = explained(queue, waiter, names=["shipped:42"])
    assert said == "it has been waiting for event shipped:42 since 2030-01-01T12:00:00+00:00, gives up in 2.0 h"
    assert "event a | b since" in explained(queue, waiter, names=["a", "b"])


def test_a_question(queue: Face) -> None:
    @queue.task
    async def asking(ctx: AsyncTaskContext) -> None:
        await ctx.wait("sure", bool, ask="Are you sure?", timeout_seconds=7200)

    task_id = asking.submit()
    queue.process_batch()
    (reason,) = queue.explain(task_id).reasons
    assert reason.text == "it has been asking 'Are you sure?' since 2030-01-01T12:00:00+00:00, gives up in 2.0 h"
    assert reason.remedy == f"answer it: tasklib answer {task_id} sure JSON"


def test_children(queue: Face, part: Any) -> None:
    @queue.task
    async def parent(ctx: AsyncTaskContext) -> None:
        await ctx.map(part, [{"n": 13}, {"n": 1}, {"n": 2}])

    task_id = parent.submit()
    queue.process_batch(1)
    queue.process_batch(1)  # the first child fails
    said = str(queue.explain(task_id))
    oldest = sorted(queue.list(name="part", state="pending"), key=lambda each: each.seq)[0]
    assert f"the oldest is part {oldest.id}, pending, since 2030-01-01T12:00:00+00:00" in said
    assert "of 3 left (" in said


def test_what_is_before_it_in_a_flow(queue: Face, part: Any) -> None:
    @queue.task(name="report")
    def report(a: int, b: int) -> int:
        return a + b

    flow = queue.plain.flow("nightly")
    first = flow.add(part.bind(1))
    later = flow.add(part.options(delay_seconds=3600).bind(2))
    last = flow.add(report.bind(first.result, later.result))
    flow.submit()
    queue.process_batch()
    assert str(queue.explain(last.id)) == "it runs after part (completed), part (pending)"


def test_a_budget(queue: Face) -> None:
    queue.set_budget("llm-tokens", per_minute=60, burst=1000)

    @queue.task
    async def spender(ctx: AsyncTaskContext) -> None:
        await ctx.spend("llm-tokens", 1000)
        await ctx.options(name="more").spend("llm-tokens", 900)

    assert explained(queue, spender).startswith("it is short of 900 llm-tokens; tries again in 15 min")
