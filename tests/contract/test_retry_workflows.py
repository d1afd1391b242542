"""Workflows and flows that a person retries: from where they failed, from a step, from scratch, with what follows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tasklib import Abort, AsyncTaskContext, TaskContext, TaskState
from tasklib.errors import ConfigurationError, InvalidTransition
from tasklib.storage.operations.workflows.groups import fold_groups
from tasklib.worker.workflows import children
from tests.contract.test_groups import drain
from tests.contract.test_steps import Calls, calls, finish
from tests.fixtures.queues import Face

__all__ = ["calls"]


@pytest.fixture
def steps(queue: Face, calls: Calls) -> Any:
    @queue.task(max_retries=0)
    async def steps(ctx: AsyncTaskContext) -> list[Any]:
        first = await ctx.options(name="first").step(calls.note, "first")
        told = await ctx.wait("told")
        charged = await ctx.options(name="charge").step(calls.note, "charge")
        last = await ctx.options(name="last").step(calls.note, "last")
        if len(calls) == 3:
            raise Abort("once")
        return [first, told, charged, last]

    return steps


def test_a_retry_resumes_and_runs_no_step_again(queue: Face, calls: Calls, steps: Any):
    task_id = steps.submit()
    queue.plain.emit("told", 1)
    drain(queue)
    calls.append("a person")
    queue.retry(task_id)
    drain(queue)

    assert queue.read(task_id).result == {"value": ["first", 1, "charge", "last"]}
    assert list(calls) == ["first", "charge", "last", "a person"]


def test_a_retry_from_a_step_forgets_it_and_those_after_it(queue: Face, calls: Calls, steps: Any):
    task_id = steps.submit()
    queue.plain.emit("told", 1)
    drain(queue)
    queue.retry(task_id, from_step="charge")
    drain(queue)

    assert queue.read(task_id).result == {"value": ["first", 1, "charge", "last"]}
    assert list(calls) == ["first", "charge", "last", "charge", "last"]


def test_a_workflow_that_waits_for_its_retry_begins_again_from_a_step(queue: Face, calls: Calls):
    @queue.task(max_retries=3)
    async def steps(ctx: AsyncTaskContext) -> None:
        for name in ("first", "charge"):
            await ctx.options(name=name).step(calls.note, name)
        if len(calls) == 2:
            raise ValueError("once")

    task_id = steps.submit()
    queue.process_batch()
    queue.retry(task_id, from_step="charge")
    drain(queue)

    assert list(calls) == ["first", "charge", "charge"]


def test_a_retry_from_a_wait_gives_its_message_again(queue: Face, calls: Calls, steps: Any):
    task_id = steps.submit()
    queue.plain.emit("told", "message", to=task_id)
    drain(queue)
    queue.retry(task_id, from_step="told")
    drain(queue)

    assert queue.read(task_id).result == {"value": ["first", "message", "charge", "last"]}


def test_a_retry_from_scratch_forgets_everything(queue: Face, calls: Calls, steps: Any):
    task_id = steps.submit()
    queue.plain.emit("told", "message", to=task_id)
    drain(queue)
    queue.retry(task_id, from_scratch=True)
    drain(queue)

    assert queue.read(task_id).result == {"value": ["first", "message", "charge", "last"]}
    assert list(calls) == ["first", "charge", "last"] * 2


def test_wrong_retries_are_refused_and_change_nothing(queue: Face, calls: Calls, steps: Any):
    task_id = steps.submit()
    queue.plain.emit("told", 1)
    drain(queue)
    with pytest.raises(ConfigurationError, match="has no step 'refund'; it has recorded: first, told, charge, last"):
        queue.retry(task_id, from_step="refund")
    with pytest.raises(ConfigurationError, match="one of them"):
        queue.retry(task_id, from_step="charge", from_scratch=True)

    assert queue.read(task_id).state is TaskState.FAILED


def test_a_step_with_an_undo_is_not_forgotten_while_the_workflow_lives(queue: Face, calls: Calls):
    @queue.task
    def undo() -> None: ...

    @queue.task(max_retries=5)
    def saga(ctx: TaskContext) -> None:
        ctx.options(name="charge", undo=undo.bind()).step(calls.note, "charge")
        raise ValueError("again")

    task_id = saga.submit()
    queue.process_batch()
    with pytest.raises(InvalidTransition, match="cancel it first"):
        queue.retry(task_id, from_step="charge")
    with pytest.raises(InvalidTransition, match="cancel it first"):
        queue.retry(task_id, from_scratch=True)
    assert queue.sql("SELECT key FROM tasklib_steps") == [{"key": "charge"}]


def test_a_child_that_was_deleted_fails_its_parent_and_a_retry_runs_it_anew(queue: Face, calls: Calls):
    @queue.task
    def child() -> str:
        calls.note("child")
        return "done"

    @queue.task(max_retries=3)
    async def parent(ctx: AsyncTaskContext) -> str:
        return await ctx.run(child.options(delay_seconds=60).bind())

    task_id = parent.submit()
    queue.process_batch()
    (found,) = queue.list(name="child")
    queue.cancel(found.id)
    queue.delete(found.id)
    drain(queue)
    ended = queue.read(task_id)
    assert (ended.state, ended.retry_count) == (TaskState.FAILED, 0)
    assert "TaskFailed: the child 'child' was deleted before its end was seen" in (ended.error or "")
    queue.retry(task_id)
    drain(queue)
    queue.advance(60)
    drain(queue)

    assert queue.read(task_id).result == {"value": "done"}
    assert list(calls) == ["child"]
    assert queue.sql("SELECT total, ended, failed, cancelled FROM tasklib_groups") == [
        {"total": 1, "ended": 1, "failed": 0, "cancelled": 0}
    ]


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("what", ["run", "map", "flow", "wait"])
def test_patience_begins_anew_with_a_retry(queue: Face, what: str, folded: bool):
    @queue.task
    async def late(ctx: AsyncTaskContext) -> None:
        await ctx.wait("never")

    @queue.task(max_retries=0)
    async def parent(ctx: AsyncTaskContext) -> None:
        flow = queue.plain.flow("late")
        flow.add(late.bind())
        match what:
            case "run":
                await ctx.run(late.bind(), timeout_seconds=60)
            case "map":
                await ctx.map(late, [{}], timeout_seconds=60)
            case "flow":
                await ctx.run(flow, timeout_seconds=60)
            case _:
                await ctx.wait("never", timeout_seconds=60)

    task_id = parent.submit()
    for _ in range(2):
        drain(queue)
        assert queue.read(task_id).next_retry_at == queue.now + timedelta(seconds=60)
        queue.advance(60)
        queue.process_batch(1)
        assert "WaitTimeout" in (queue.read(task_id).error or "")
        while folded and queue.do(fold_groups):
            pass
        queue.retry(task_id)


def test_a_retried_parent_runs_its_failed_children_again_at_their_failed_steps(queue: Face, calls: Calls):
    broken = [True]

    @queue.task(max_retries=0)
    def child(ctx: TaskContext, n: int) -> int:
        def charge() -> int:
            if broken[0] and n == 1:
                raise ValueError("broken")
            return n

        ctx.options(name="first").step(calls.note, f"first {n}")
        return ctx.step(charge)

    @queue.task(max_retries=0)
    def parent(ctx: TaskContext) -> list[int]:
        return list(ctx.map(child, [{"n": n} for n in range(3)], max_failures=0).results())

    task_id = parent.submit()
    drain(queue)
    assert queue.read(task_id).state is TaskState.FAILED
    broken[0] = False
    queue.retry(task_id)
    drain(queue)

    assert queue.read(task_id).result == {"value": [0, 1, 2]}
    assert sorted(calls) == ["first 0", "first 1", "first 2"]
    assert queue.sql("SELECT * FROM tasklib_tallies") == []


@pytest.fixture
def flow(queue: Face, calls: Calls) -> Any:
    """a, then b after a, c after b, and d, which runs if a fails; -1 in `broken` makes a fail."""
    broken = [True]

    @queue.task(max_retries=0)
    def node(name: str, given: str = "") -> str:
        calls.note(name)
        if name == "a" and broken[0]:
            raise ValueError("broken")
        return f"{given}{name}"

    flow = queue.flow("chain")
    a = flow.add(node.bind("a"))
    b = flow.add(node.bind("b", a.result))
    c = flow.add(node.bind("c", b.result))
    d = flow.add(node.bind("d"), after=[a], run_if="failure")
    queue.via(flow).submit()
    return a, b, c, d, broken


def test_what_was_skipped_waits_again_when_what_it_follows_is_retried(queue: Face, calls: Calls, flow: Any):
    a, b, c, d, broken = flow
    drain(queue)
    assert [queue.read(each.id).state.value for each in (a, b, c, d)] == [
        "failed",
        "cancelled",
        "cancelled",
        "completed",
    ]
    broken[0] = False
    queue.retry(a.id)
    assert [queue.read(each.id).waits_for for each in (a, b, c)] == [None, "prerequisites node", "prerequisites node"]
    drain(queue)

    assert [queue.read(each.id).result for each in (a, b, c)] == [{"value": "a"}, {"value": "ab"}, {"value": "abc"}]
    assert list(calls) == ["a", "d", "a", "b", "c"]
    assert queue.sql("SELECT * FROM tasklib_tallies") == []


def test_in_bulk_too(queue: Face, calls: Calls, flow: Any):
    a, b, c, _, broken = flow
    drain(queue)
    broken[0] = False
    assert queue.retry_many(name="node") == 1
    drain(queue)

    assert [queue.read(each.id).state for each in (a, b, c)] == [TaskState.COMPLETED] * 3


def test_a_skipped_task_that_is_retried_alone_is_skipped_again(queue: Face, calls: Calls, flow: Any):
    a, b, c, _, _ = flow
    drain(queue)
    queue.retry(b.id)
    assert queue.read(c.id).waits_for == "prerequisites node"
    drain(queue)

    assert [queue.read(each.id).state.value for each in (a, b, c)] == ["failed", "cancelled", "cancelled"]
    assert queue.read(b.id).error == "Skipped: node was failed"


def test_a_flow_of_a_workflow_goes_on_when_the_workflow_is_retried(queue: Face, calls: Calls):
    broken = [True]

    @queue.task(max_retries=0)
    def node(name: str, given: str = "") -> str:
        if name == "a" and broken[0]:
            raise ValueError("broken")
        return f"{given}{name}"

    @queue.task(max_retries=0)
    def parent(ctx: TaskContext) -> list[str]:
        flow = queue.plain.flow("chain")
        flow.add(node.bind("b", flow.add(node.bind("a")).result))
        return list(ctx.run(flow).results())

    task_id = parent.submit()
    drain(queue)
    assert queue.read(task_id).state is TaskState.FAILED
    broken[0] = False
    queue.retry(task_id)
    drain(queue)

    assert queue.read(task_id).result == {"value": ["a", "ab"]}


@pytest.mark.parametrize("kind", ["map", "run", "flow"])
def test_children_that_were_cancelled_with_their_workflow_run_again_with_it(queue: Face, kind: str):
    @queue.task
    def leaf(n: int) -> int:
        return n

    @queue.task
    async def parent(ctx: AsyncTaskContext) -> list[int]:
        if kind == "run":
            return [await ctx.run(leaf.bind(0))]
        if kind == "map":
            return [value async for value in (await ctx.map(leaf, [{"n": n} for n in range(3)])).results()]
        flow: Any = queue.plain.flow("two")
        flow.add(leaf.bind(flow.add(leaf.bind(0)).result))
        return [value async for value in (await ctx.run(flow)).results()]

    task_id = parent.submit()
    queue.process_batch(1)
    queue.cancel(task_id)
    drain(queue)
    assert {child.state for child in queue.list(name="leaf")} == {TaskState.CANCELLED}
    queue.retry(task_id)
    drain(queue)

    assert queue.read(task_id).result == {"value": {"map": [0, 1, 2], "run": [0], "flow": [0, 0]}[kind]}


@pytest.mark.parametrize("why", ["cancel", "failures"])
def test_a_map_that_was_stopped_in_the_middle_of_its_inputs_has_all_of_them_after_a_retry(
    queue: Face, monkeypatch: pytest.MonkeyPatch, why: str
):
    monkeypatch.setattr(children, "CHUNK", 2)
    first = [True]

    @queue.task(max_retries=0)
    def leaf(n: int) -> int:
        return n

    @queue.task
    def parent(ctx: TaskContext) -> list[int]:
        def inputs() -> Any:
            for n in range(9):
                if n == 5 and first.pop():
                    first.append(False)
                    stop()
                yield {"n": n}

        return list(ctx.map(leaf, inputs(), max_failures=0).results())

    def stop() -> None:
        if why == "cancel":
            queue.plain.cancel(task_id)
        else:
            queue.plain.cancel(queue.plain.list(name="leaf")[0].id)
            while queue.plain.database.run(fold_groups):
                pass

    task_id = parent.submit()
    first[:] = [False, True]
    drain(queue)
    assert queue.read(task_id).state is (TaskState.CANCELLED if why == "cancel" else TaskState.FAILED)
    assert why == "cancel" or queue.count(name="leaf") < 9
    queue.retry(task_id)
    drain(queue)

    assert queue.read(task_id).result == {"value": list(range(9))}


def test_a_completed_workflow_runs_again_from_a_step(queue: Face, calls: Calls):
    @queue.task
    def work(ctx: TaskContext) -> int:
        ctx.options(name="one").step(calls.note, 1)
        return ctx.options(name="two").step(calls.note, len(calls))

    task_id = work.submit()
    assert finish(queue, task_id).result == {"value": 1}
    queue.retry(task_id, from_step="two")

    assert finish(queue, task_id).result == {"value": 2}
