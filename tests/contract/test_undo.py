"""Undos: bound before their steps run, submitted once when the workflow ends in anything but success, last first."""

from __future__ import annotations

from typing import Any

import pytest

from tasklib import Abort, AsyncTaskContext, StepFailed, TaskContext, TaskState
from tasklib.errors import ConfigurationError, InvalidTransition
from tests.contract.test_groups import drain
from tests.contract.test_steps import Calls, calls, finish
from tests.fixtures.queues import Face

__all__ = ["calls"]


@pytest.fixture
def undo(queue: Face, calls: Calls) -> Any:
    @queue.task(max_retries=0)
    def undo(what: str) -> None:
        calls.note(f"undo {what}")
        if what.startswith("broken"):
            raise ValueError(what)

    return undo


@pytest.fixture
def saga(queue: Face, calls: Calls, undo: Any) -> Any:
    """Three steps with undos; then it waits, returns, or raises, as it is told."""

    @queue.task(max_retries=1)
    async def saga(ctx: AsyncTaskContext, ending: str, steps: list[str]) -> str:
        for what in steps:
            await ctx.options(name=what, undo=undo.bind(what)).step(calls.note, what)
        if ending == "wait":
            await ctx.wait("never")
        if ending != "return":
            raise Abort(ending)
        return "done"

    return saga


def undone(calls: Calls) -> list[str]:
    return [each.removeprefix("undo ") for each in calls if each.startswith("undo ")]


def test_a_failure_for_good_undoes_the_steps_last_first(queue: Face, calls: Calls, saga: Any):
    task_id = saga.options(priority=4).submit("no", ["a", "b", "c"])
    drain(queue)

    assert queue.read(task_id).state is TaskState.FAILED
    assert undone(calls) == ["c", "b", "a"]
    assert {(task.state.value, task.priority) for task in queue.list(name="undo")} == {("completed", 4)}
    assert queue.sql("SELECT * FROM tasklib_tallies") == []


def test_success_undoes_nothing(queue: Face, calls: Calls, saga: Any):
    task_id = saga.submit("return", ["a", "b"])
    drain(queue)

    assert queue.read(task_id).result == {"value": "done"}
    assert undone(calls) == []
    assert queue.count(name="undo") == 0


def test_a_cancel_undoes(queue: Face, calls: Calls, saga: Any):
    task_id = saga.submit("wait", ["a", "b"])
    drain(queue)
    assert queue.count(name="undo") == 0
    queue.cancel(task_id)
    assert [task.waits_for for task in queue.list(name="undo")] == ["prerequisites undo", None]
    drain(queue)

    assert undone(calls) == ["b", "a"]


def test_a_person_who_ends_it_by_sql_undoes_it_too(queue: Face, calls: Calls, saga: Any):
    task_id = saga.submit("wait", ["a", "b"])
    drain(queue)
    end = "UPDATE tasks SET state = 'cancelled', waits_for = NULL, completed_at = created_at"
    queue.sql(f"{end} WHERE id = '{task_id}'")
    drain(queue)

    assert undone(calls) == ["b", "a"]


def test_deleting_a_living_one_by_sql_undoes_it_too(queue: Face, calls: Calls, saga: Any):
    task_id = saga.submit("wait", ["a", "b"])
    drain(queue)
    queue.sql(f"DELETE FROM tasks WHERE id = '{task_id}'")
    queue.advance(3600 * 24 * 365 * 100)
    drain(queue)

    assert undone(calls) == ["b", "a"]


def test_a_lost_worker_undoes_when_the_task_is_buried(queue: Face, calls: Calls, saga: Any):
    task_id = saga.options(max_retries=0).submit("wait", ["a"])
    drain(queue)
    queue.plain.emit("never", None)
    queue.worker("saga").claim()
    queue.advance(3600)
    queue.recover_stale_tasks()
    assert queue.read(task_id).state is TaskState.BURIED
    drain(queue)

    assert undone(calls) == ["a"]


def test_retries_and_parked_tasks_undo_nothing(queue: Face, calls: Calls, undo: Any):
    kinds = ["step", "sleep"]

    @queue.task(max_retries=1)
    async def saga(ctx: AsyncTaskContext) -> None:
        await ctx.options(undo=undo.bind("a"), name="a").step(calls.note, "a")
        if kinds[0] == "step":
            await ctx.options(name="b").step(calls.note, "b")
        else:
            await ctx.options(name="b").sleep(60)
        if kinds.pop(0) == "step":
            raise ValueError("again")

    task_id = saga.submit()
    queue.process_batch()
    assert queue.read(task_id).next_retry_at is not None
    task = finish(queue, task_id)

    assert task.waits_for.startswith("code ")
    assert queue.count(name="undo") == 0


def test_a_step_whose_outcome_is_unknown_is_undone(queue: Face, calls: Calls, undo: Any):
    @queue.task(max_retries=0)
    async def saga(ctx: AsyncTaskContext) -> None:
        def charge() -> None:
            calls.note("charge")
            raise TimeoutError("no answer")

        try:
            await ctx.options(undo=undo.bind("charge")).step(charge)
        except StepFailed as error:
            raise Abort("given up") from error

    finish(queue, saga.submit())
    drain(queue)

    assert list(calls) == ["charge", "undo charge"]


def test_the_undo_is_bound_before_the_step_runs(queue: Face, undo: Any):
    seen: list[Any] = []

    @queue.task
    def saga(ctx: TaskContext) -> None:
        def look() -> None:
            seen.extend(queue.sql("SELECT state, undo IS NOT NULL AS bound FROM tasklib_steps"))

        ctx.options(undo=undo.bind("x")).step(look)

    finish(queue, saga.submit())

    assert [(row["state"], bool(row["bound"])) for row in seen] == [("open", True)]


def test_a_transactional_step_that_never_happened_is_not_undone(queue: Face, calls: Calls, undo: Any):
    if queue.url == "sqlite:///:memory:":
        pytest.skip("a database in memory has one connection")

    def book(fails: bool) -> None:
        if fails:
            raise ValueError("no")

    @queue.task(max_retries=0)
    def saga(ctx: TaskContext) -> None:
        ctx.options(transactional=True, undo=undo.bind("first"), name="first").step(book, False)
        ctx.options(transactional=True, undo=undo.bind("second"), name="second").step(book, True)

    finish(queue, saga.submit())
    drain(queue)

    assert undone(calls) == ["first"]


def test_children_are_undone_too(queue: Face, calls: Calls, undo: Any):
    @queue.task
    def child(n: int) -> int:
        return n

    @queue.task(max_retries=0)
    async def saga(ctx: AsyncTaskContext) -> None:
        await ctx.options(undo=undo.bind("run")).run(child.bind(1))
        await ctx.options(undo=undo.bind("map"), name="all").map(child, [{"n": 1}])
        raise Abort("no")

    saga.submit()
    drain(queue)

    assert undone(calls) == ["map", "run"]


def test_an_undo_that_fails_does_not_keep_the_others_from_running(queue: Face, calls: Calls, saga: Any):
    saga.submit("no", ["a", "broken b", "c"])
    drain(queue)

    assert undone(calls) == ["c", "broken b", "a"]
    assert queue.count(name="undo", state="failed") == 1


def test_a_workflow_that_was_undone_is_retried_only_from_scratch_and_after_its_undos(
    queue: Face, calls: Calls, saga: Any
):
    task_id = saga.submit("no", ["a", "b"])
    drain(queue)
    assert queue.retry_many(name="saga", dry_run=True) == queue.retry_many(name="saga") == 0
    drain(queue)
    with pytest.raises(InvalidTransition, match="from scratch"):
        queue.retry(task_id)
    calls.clear()
    queue.retry(task_id, from_scratch=True)
    drain(queue)

    assert list(calls) == ["a", "b", "undo b", "undo a"]


def test_from_scratch_waits_for_the_undos(queue: Face, calls: Calls, saga: Any):
    task_id = saga.submit("wait", ["a", "b"])
    drain(queue)
    queue.cancel(task_id)
    with pytest.raises(InvalidTransition, match="undo tasks have ended"):
        queue.retry(task_id, from_scratch=True)
    drain(queue)
    queue.retry(task_id, from_scratch=True)
    drain(queue)

    assert list(calls) == ["a", "b", "undo b", "undo a", "a", "b"]
    assert queue.read(task_id).waits_for == "event never"


def test_a_restart_is_refused_while_undos_are_bound(queue: Face, calls: Calls, undo: Any):
    @queue.task
    async def saga(ctx: AsyncTaskContext) -> None:
        await ctx.options(undo=undo.bind("a")).step(calls.note, "a")
        await ctx.sleep(60)
        raise saga.restart()

    task = finish(queue, saga.submit())
    drain(queue)

    assert task.state is TaskState.FAILED
    assert "cannot restart while undos are bound" in task.error
    assert undone(calls) == ["a"]


def test_wrong_undos_are_refused(queue: Face, undo: Any):
    problems: list[str] = []

    @queue.task(max_retries=0)
    def saga(ctx: TaskContext) -> None:
        for wrong in (undo, undo.options(unique_key="k").bind("x"), undo.options(expires_at=queue.now).bind("x")):
            try:
                ctx.options(undo=wrong).step(print)
            except ConfigurationError as error:
                problems.append(str(error))
        try:
            ctx.options(undo=undo.bind("x")).sleep(60)
        except ConfigurationError as error:
            problems.append(str(error))

    finish(queue, saga.submit())

    assert ["takes task.bind" in problems[0], "unique key" in problems[1], "expiry" in problems[2]] == [True] * 3
    assert "nothing to undo" in problems[3]
