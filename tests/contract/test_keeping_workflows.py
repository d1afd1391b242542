"""Clean-ups keep what belongs to a workflow or a flow that lives."""

from __future__ import annotations

from typing import Any

from tasklib import AsyncTaskContext
from tests.contract.test_groups import drain
from tests.fixtures.queues import Face


def clean(queue: Face) -> int:
    removed: int = queue.cleanup(older_than=60, state=["completed", "failed", "cancelled"])
    return removed


def test_children_are_kept_while_their_workflow_lives(queue: Face):
    @queue.task
    def child(n: int) -> int:
        return n

    @queue.task
    async def parent(ctx: AsyncTaskContext) -> list[int]:
        done = await ctx.map(child, [{"n": n} for n in range(3)])
        await ctx.sleep(3600)
        return [value async for value in done.results()]

    task_id = parent.submit()
    free = child.submit(9)
    drain(queue)
    queue.advance(600)

    assert clean(queue) == 1
    assert queue.get(free) is None
    queue.advance(3600)
    drain(queue)
    assert queue.read(task_id).result == {"value": [0, 1, 2]}
    queue.advance(600)
    assert clean(queue) == 4


def test_results_that_a_task_of_a_flow_waits_for_are_kept(queue: Face):
    @queue.task
    def add(a: int, b: int = 0) -> int:
        return a + b

    flow: Any = queue.flow("sums")
    early, late = flow.add(add.bind(1)), flow.add(add.options(delay_seconds=3600).bind(2))
    both = flow.add(add.bind(early.result, late.result))
    queue.via(flow).submit()
    drain(queue)
    queue.advance(600)
    assert clean(queue) == 0
    queue.advance(3600)
    drain(queue)

    assert queue.read(both.id).result == {"value": 3}
    queue.advance(600)
    assert clean(queue) == 3
