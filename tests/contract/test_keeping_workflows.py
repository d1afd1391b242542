"""Clean-ups keep what belongs to a workflow or a flow that lives."""

from __future__ import annotations

from typing import Any

import pytest

from tasklib import AsyncTaskContext
from tasklib.core.lifecycle import Ending
from tasklib.storage.operations.attempts import end_attempts
from tasklib.storage.operations.workflows import groups
from tests.contract.test_groups import drain
from tests.contract.test_steps import Calls, calls
from tests.fixtures.queues import Face

__all__ = ["calls"]


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


def submit_sums(queue: Face) -> tuple[Any, Any, Any]:
    """A flow of one task now, one in an hour, and the sum of both."""

    @queue.task
    def add(a: int, b: int = 0) -> int:
        return a + b

    flow: Any = queue.flow("sums")
    early, late = flow.add(add.bind(1)), flow.add(add.options(delay_seconds=3600).bind(2))
    both = flow.add(add.bind(early.result, late.result))
    queue.via(flow).submit()
    return early, late, both


def test_results_that_a_task_of_a_flow_waits_for_are_kept(queue: Face):
    *_, both = submit_sums(queue)
    drain(queue)
    queue.advance(600)
    assert clean(queue) == 0
    queue.advance(3600)
    drain(queue)

    assert queue.read(both.id).result == {"value": 3}
    queue.advance(600)
    assert clean(queue) == 3


def test_children_stay_with_a_workflow_that_failed_and_may_be_resumed(queue: Face):
    failing = [True]

    @queue.task
    def child(n: int) -> int:
        return n

    @queue.task(max_retries=0)
    async def parent(ctx: AsyncTaskContext) -> list[int]:
        done = await ctx.map(child, [{"n": n} for n in range(3)])
        if failing:
            raise ValueError("not yet")
        return [value async for value in done.results()]

    task_id = parent.submit()
    drain(queue)
    queue.advance(600)
    assert queue.cleanup(older_than=60) == 0
    failing.clear()
    queue.retry(task_id)
    drain(queue)

    assert queue.read(task_id).result == {"value": [0, 1, 2]}


def test_a_deleted_workflow_takes_along_all_that_belongs_to_it(queue: Face, monkeypatch: pytest.MonkeyPatch):
    """Its children and theirs, page by page; steps, waits, messages, groups, edges."""
    monkeypatch.setattr(groups, "PAGE", 2)
    monkeypatch.setattr(groups, "REMOVED", 4)

    @queue.task
    def leaf(n: int) -> int:
        return n

    @queue.task
    async def branch(ctx: AsyncTaskContext, n: int) -> int:
        return await ctx.run(leaf.bind(n))

    @queue.task
    async def root(ctx: AsyncTaskContext) -> int:
        flow: Any = queue.plain.flow("two")
        flow.add(leaf.bind(flow.add(leaf.bind(7)).result))
        await ctx.run(flow)
        await ctx.wait("go", int)
        return len(await ctx.map(branch, [{"n": n} for n in range(9)]))

    task_id, _ = root.submit(), leaf.submit(100)
    drain(queue)
    queue.emit("go", 1, to=task_id)
    queue.emit("later", 1, to=task_id)
    drain(queue)
    assert queue.read(task_id).state == "completed"
    assert queue.count() == 1 + 1 + 2 + 9 + 9

    queue.delete(task_id)
    drain(queue)

    (free,) = queue.list()
    assert free.kwargs == {"n": 100}
    for table in ("steps", "waits", "events", "groups", "edges", "tallies"):
        assert queue.sql(f"SELECT * FROM tasklib_{table}") == [], table


def test_children_that_still_run_go_when_they_have_ended(queue: Face):
    @queue.task
    def child() -> None: ...

    @queue.task
    async def parent(ctx: AsyncTaskContext) -> None:
        await ctx.run(child.bind())

    task_id = parent.submit()
    queue.process_batch(1)
    (held,) = queue.worker("child").claim(1).tasks
    queue.cancel(task_id)
    queue.delete(task_id)
    drain(queue)
    assert [task.state for task in queue.list()] == ["running"]
    queue.do(lambda: end_attempts([Ending.release(held.id, held.version)]))
    drain(queue)

    assert queue.list() == []
    assert queue.sql("SELECT id FROM tasklib_groups") == queue.sql("SELECT * FROM tasklib_tallies") == []


@pytest.mark.parametrize("how", ["api", "sql"])
def test_what_undoes_a_deleted_workflow_still_runs(queue: Face, calls: Calls, how: str):
    @queue.task
    def undo(n: int) -> None:
        calls.note(n)

    @queue.task(max_retries=0)
    async def saga(ctx: AsyncTaskContext) -> None:
        await ctx.options(undo=undo.bind(1)).step(int, 1)
        await ctx.options(undo=undo.bind(2)).step(int, 2)
        await ctx.wait("never", int)

    task_id = saga.submit()
    queue.process_batch()
    if how == "api":
        queue.cancel(task_id)
        queue.delete(task_id)
    else:
        queue.sql(f"DELETE FROM tasks WHERE id = '{task_id}'")
    drain(queue)

    assert calls == [2, 1]
    assert queue.sql("SELECT * FROM tasklib_groups WHERE kind = 'undo'") == []


def test_a_task_whose_argument_was_deleted_is_skipped(queue: Face):
    early, late, both = submit_sums(queue)
    drain(queue)
    queue.delete(early.id)
    queue.advance(3600)
    drain(queue)

    skipped = queue.read(both.id)
    assert (skipped.state, skipped.error) == ("cancelled", "Skipped: a task was deleted")
    queue.delete(late.id)
    queue.delete(both.id)
    drain(queue)
    assert queue.sql("SELECT * FROM tasklib_edges") == queue.sql("SELECT * FROM tasklib_groups") == []
