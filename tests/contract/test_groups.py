"""Children of workflows: run and mapped, counted once however they end, cancelled with their parent."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tasklib import Abort, AsyncTaskContext, TaskContext, TaskFailed, TaskState, WaitTimeout, has_error, is_failed
from tasklib.storage.operations.workflows.groups import fold_groups
from tasklib.storage.operations.workflows.marks import MEMBER
from tests.contract.test_steps import Calls, calls
from tests.fixtures.queues import Face

__all__ = ["calls"]


def drain(queue: Face) -> None:
    """Run what is due until nothing is, and what that wakes."""
    while queue.process_batch():
        pass


@pytest.fixture
def double(queue: Face, calls: Calls) -> Any:
    @queue.task(max_retries=0)
    def double(n: int) -> int:
        calls.note(n)
        if n < 0:
            raise ValueError(f"{n} is negative")
        return 2 * n

    return double


def test_a_child_runs_once_and_its_result_is_recorded(queue: Face, calls: Calls, double: Any):
    @queue.task
    async def parent(ctx: AsyncTaskContext) -> int:
        found = await ctx.run(double.bind(21))
        await ctx.sleep(60)
        return found

    task_id = parent.options(priority=7, tags={"a": 1}).submit()
    queue.process_batch()
    task = queue.read(task_id)
    assert (task.waits_for, task.due_at) in (
        ("children double", None),
        (None, task.scheduled_at),
        ("sleep", task.due_at),
    )
    drain(queue)
    queue.advance(60)
    drain(queue)

    assert queue.read(task_id).result == {"value": 42}
    assert calls == [21]
    (child,) = queue.list(name="double")
    assert child.priority == 7


def test_a_plain_function_runs_children_too(queue: Face, double: Any):
    @queue.task
    def parent(ctx: TaskContext) -> list[int]:
        group = ctx.map(double, ({"n": n} for n in range(5)))
        return [ctx.run(double.bind(n=10)), *group.results()]

    task_id = parent.submit()
    drain(queue)

    assert queue.read(task_id).result == {"value": [20, 0, 2, 4, 6, 8]}


def test_a_map_gives_results_in_the_order_of_its_inputs(queue: Face, double: Any, monkeypatch: pytest.MonkeyPatch):
    from tasklib.worker.workflows import children

    monkeypatch.setattr(children, "CHUNK", 3)

    @queue.task
    async def parent(ctx: AsyncTaskContext) -> list[int]:
        group = await ctx.map(double, [{"n": n} for n in range(10)])
        assert (len(group), group.failed, group.cancelled) == (10, 0, 0)
        return [value async for value in group.results()]

    task_id = parent.submit()
    drain(queue)

    assert queue.read(task_id).result == {"value": [2 * n for n in range(10)]}
    assert queue.count(name="double") == 10


def test_an_empty_map_is_over_at_once(queue: Face, double: Any):
    @queue.task
    async def parent(ctx: AsyncTaskContext) -> int:
        return len(await ctx.map(double, []))

    task_id = parent.submit()
    queue.process_batch()

    assert queue.read(task_id).result == {"value": 0}


def test_a_failed_child_is_a_final_taskfailed_and_can_be_handled(queue: Face, double: Any):
    @queue.task(max_retries=3)
    async def parent(ctx: AsyncTaskContext, catch: bool) -> str:
        try:
            await ctx.run(double.bind(-1))
        except TaskFailed as error:
            if not catch:
                raise
            return f"{error.task.name} {error.task.state}"
        return "?"

    caught, final = parent.submit(True), parent.submit(False)
    drain(queue)

    assert queue.read(caught).result == {"value": "double failed"}
    ended = queue.read(final)
    assert (ended.state, ended.retry_count) == (TaskState.FAILED, 0)
    assert "-1 is negative" in (ended.error or "")


def test_a_failed_child_has_its_id_and_state_as_a_task_has_them(queue: Face, double: Any):
    seen: list[Any] = []

    @queue.task
    def parent(ctx: TaskContext) -> None:
        try:
            ctx.run(double.bind(-1))
        except TaskFailed as error:
            seen.extend([error.task, error.task_id])

    parent.submit()
    drain(queue)

    (child,) = queue.list(name="double")
    failed, task_id = seen
    assert (failed.id, task_id, failed.payload) == (child.id, child.id, child.payload)
    assert (is_failed(failed), has_error(failed), failed.state) == (True, True, TaskState.FAILED)


def test_a_person_retries_the_parent_and_with_it_the_failed_child(queue: Face, calls: Calls):
    @queue.task(max_retries=0)
    def flaky() -> str:
        if calls.note(1) and len(calls) == 1:
            raise Abort("first")
        return "second"

    @queue.task(max_retries=0)
    async def parent(ctx: AsyncTaskContext) -> str:
        return await ctx.run(flaky.bind())

    task_id = parent.submit()
    drain(queue)
    assert queue.read(task_id).state is TaskState.FAILED
    queue.retry(task_id)
    drain(queue)

    assert queue.read(task_id).result == {"value": "second"}
    assert queue.count(name="flaky") == 1


def test_every_way_a_child_can_end_counts_once(queue: Face, double: Any):
    """Completed, failed, cancelled, deleted by SQL, retried by SQL: the counts are those of a recount."""

    @queue.task
    async def parent(ctx: AsyncTaskContext) -> list[int]:
        group = await ctx.map(double.options(delay_seconds=60), [{"n": n} for n in (1, 2, 3, -4, 5)])
        return [group.total, group.failed, group.cancelled]

    task_id = parent.submit()
    queue.process_batch()
    children = sorted(queue.list(name="double"), key=lambda each: each.seq)
    queue.cancel(children[0].id)
    queue.sql(f"DELETE FROM tasks WHERE id = '{children[1].id}'")
    queue.cancel(children[2].id)
    queue.retry(children[2].id)
    assert queue.read(task_id).waits_for == "children double"
    queue.advance(60)
    drain(queue)

    assert queue.read(task_id).result == {"value": [5, 1, 2]}
    (group,) = queue.sql("SELECT total, ended, failed, cancelled FROM tasklib_groups")
    assert dict(group) == {"total": 5, "ended": 5, "failed": 1, "cancelled": 2}
    assert queue.sql("SELECT * FROM tasklib_tallies") == []


def test_whatever_a_person_does_to_children_by_sql_the_counts_are_those_of_a_recount(queue: Face, double: Any):
    @queue.task
    async def parent(ctx: AsyncTaskContext) -> None:
        await ctx.map(double.options(delay_seconds=3600), [{"n": n} for n in range(8)])

    parent.submit()
    queue.process_batch()
    states = {str(child.id): "pending" for child in queue.list(name="double")}
    ids, chance = sorted(states), random.Random(7)
    for turn in range(60):
        child, state = chance.choice(ids), chance.choice(["failed", "cancelled", "buried", "completed", "pending", ""])
        if state and states[child] != "pending":
            state = "pending"
        if state:
            ended = "NULL" if state == "pending" else f"'2030-01-01 12:00:{turn:02}.000000'"
            queue.sql(f"UPDATE tasks SET state = '{state}', completed_at = {ended} WHERE id = '{child}'")
        elif len(ids) > 5:
            queue.sql(f"DELETE FROM tasks WHERE id = '{child}'")
            ids.remove(child)
            state = "cancelled" if states[child] == "pending" else states[child]
        states[child] = state or states[child]
        if chance.random() < 0.3 or turn == 59:
            while queue.do(fold_groups):
                pass
            (group,) = queue.sql("SELECT ended, failed, cancelled FROM tasklib_groups WHERE kind = 'map'")
            seen = list(states.values())
            assert dict(group) == {
                "ended": len(seen) - seen.count("pending"),
                "failed": seen.count("failed") + seen.count("buried"),
                "cancelled": seen.count("cancelled"),
            }, turn


def test_too_many_failures_cancel_the_rest(queue: Face, double: Any):
    @queue.task(max_retries=0)
    async def parent(ctx: AsyncTaskContext) -> None:
        await ctx.map(double, [{"n": -1}, {"n": -2}, {"n": 3}], max_failures=1)

    task_id = parent.submit()
    queue.process_batch(1)
    slow = max(queue.list(name="double"), key=lambda each: each.seq)
    queue.sql(f"UPDATE tasks SET scheduled_at = '2031-01-01 00:00:00' WHERE id = '{slow.id}'")
    drain(queue)

    assert queue.read(task_id).state is TaskState.FAILED
    assert "the children of 'double' failed with: 2 of 3 children failed" in (queue.read(task_id).error or "")
    assert queue.read(slow.id).state is TaskState.CANCELLED


@pytest.mark.parametrize("how", ["cancel", "fail", "sql"])
def test_what_ends_the_parent_cancels_its_children_and_theirs(queue: Face, double: Any, how: str):
    @queue.task
    async def child(ctx: AsyncTaskContext) -> None:
        await ctx.run(double.options(delay_seconds=3600).bind(1))

    @queue.task(max_retries=0)
    async def parent(ctx: AsyncTaskContext) -> None:
        try:
            await ctx.options(timeout_seconds=None).run(child.bind(), timeout_seconds=600 if how == "fail" else None)
        except WaitTimeout as error:
            raise Abort("too slow") from error

    free = double.options(delay_seconds=3600).submit(2)
    task_id = parent.submit()
    drain(queue)
    assert queue.count(name="double", state="delayed") == 2
    match how:
        case "cancel":
            queue.cancel(task_id)
        case "fail":
            queue.advance(600)
            queue.process_batch()
        case "sql":
            now = "now()" if not queue.is_sqlite else "'2030-01-01 12:00:00'"
            queue.sql(
                f"UPDATE tasks SET state = 'failed', completed_at = {now}, waits_for = NULL, error = 'E' "
                f"WHERE id = '{task_id}'"
            )
    for _ in range(4):
        queue.do(fold_groups)

    states = {each.name: each.state for each in queue.list() if each.id not in (task_id, free)}
    assert states == {"child": TaskState.CANCELLED, "double": TaskState.CANCELLED}
    assert queue.read(free).state is TaskState.PENDING


@pytest.mark.parametrize("how", ["cancel", "sql"])
def test_children_that_come_after_their_parent_was_ended_do_not_run(
    queue: Face, calls: Calls, double: Any, how: str, monkeypatch: pytest.MonkeyPatch
):
    """It is ended between two chunks of them."""
    from tasklib.worker.workflows import children

    monkeypatch.setattr(children, "CHUNK", 2)
    if queue.url == "sqlite:///:memory:" and how == "sql":
        pytest.skip("a database in memory has one connection")
    now = "now()" if not queue.is_sqlite else "'2030-01-01 12:00:00'"

    def inputs() -> Any:
        for n in range(6):
            if n == 4 and how == "cancel":
                queue.plain.cancel(task_id)
            elif n == 4:
                queue.sql(
                    f"UPDATE tasks SET state = 'failed', completed_at = {now}, error = 'E' WHERE id = '{task_id}'"
                )
            yield {"n": n}

    @queue.task
    async def parent(ctx: AsyncTaskContext) -> None:
        await ctx.map(double, inputs())

    task_id = parent.submit()
    queue.process_batch(1)
    drain(queue)
    for _ in range(4):
        queue.do(fold_groups)

    assert queue.read(task_id).state is (TaskState.CANCELLED if how == "cancel" else TaskState.FAILED)
    assert {each.state for each in queue.list(name="double")} == {TaskState.CANCELLED}
    assert calls == []


def test_a_child_may_end_after_its_parent_was_deleted(queue: Face, double: Any):
    @queue.task
    async def parent(ctx: AsyncTaskContext) -> None:
        await ctx.run(double.options(delay_seconds=60).bind(1))

    task_id = parent.submit()
    queue.process_batch()
    queue.sql(f"DELETE FROM tasks WHERE id = '{task_id}'")
    queue.advance(60)
    drain(queue)

    assert queue.do(fold_groups) == 0
    assert queue.sql("SELECT * FROM tasklib_tallies") == []


def test_a_map_that_was_broken_off_goes_on_where_it_was(queue: Face, double: Any, monkeypatch: pytest.MonkeyPatch):
    """Its worker is lost between two chunks: what is stored is not stored again."""
    from tasklib.worker.workflows import children

    monkeypatch.setattr(children, "CHUNK", 2)
    broken = [True]

    def inputs() -> Any:
        for n in range(6):
            if n == 4 and broken.pop():
                broken.append(False)
                raise OSError("the list cannot be read")
            yield {"n": n}

    @queue.task(max_retries=2)
    async def parent(ctx: AsyncTaskContext) -> list[int]:
        return [value async for value in (await ctx.map(double, inputs())).results()]

    broken[:] = [False, True]
    task_id = parent.submit()
    queue.process_batch(1)
    assert queue.count(name="double") == 4
    queue.advance(60)
    drain(queue)

    assert queue.read(task_id).result == {"value": [0, 2, 4, 6, 8, 10]}
    assert queue.count(name="double") == 6


@pytest.mark.parametrize("second", [[0, 1, 7, 3, 4, 5], [1, 0, 2, 3, 4, 5], [0, 1, 2]])
def test_a_map_that_goes_on_with_other_inputs_is_parked(
    queue: Face, double: Any, monkeypatch: pytest.MonkeyPatch, second: list[int]
):
    """Broken off between two chunks; new code, or a list that has changed, would run some children of each."""
    from tasklib.worker.workflows import children

    monkeypatch.setattr(children, "CHUNK", 2)
    runs = iter([[0, 1, 2, 3, None], second])

    def inputs() -> Any:
        for n in next(runs):
            if n is None:
                raise OSError("the list cannot be read")
            yield {"n": n}

    @queue.task(max_retries=2)
    async def parent(ctx: AsyncTaskContext) -> int:
        return (await ctx.map(double, inputs())).total

    task_id = parent.submit()
    queue.process_batch(1)
    queue.advance(60)
    drain(queue)

    task = queue.read(task_id)
    assert (task.state, (task.waits_for or "")[:5]) == (TaskState.PENDING, "code ")
    assert "step 'double' was recorded as a map" in (task.error or "")
    assert queue.count(name="double") == 4


def test_wrong_inputs_are_refused(queue: Face, double: Any):
    @queue.task(max_retries=0)
    async def parent(ctx: AsyncTaskContext, what: str) -> None:
        match what:
            case "input":
                await ctx.map(double, [{"n": 1}, {"n": "x"}])
            case "task":
                await ctx.run(double)
            case _:
                await ctx.map(double.options(unique_key="k"), [{"n": 1}])

    for what, text in (("input", "'n'"), ("task", "task.bind"), ("unique", "unique key 'k'")):
        task_id = parent.submit(what)
        drain(queue)
        assert text in (queue.read(task_id).error or "")


def test_explain_says_how_many_children_are_left(queue: Face, double: Any):
    @queue.task
    async def parent(ctx: AsyncTaskContext) -> None:
        await ctx.map(double.options(delay_seconds=60), [{"n": n} for n in range(3)])

    task_id = parent.submit()
    queue.process_batch()

    assert "3 of 3 left" in str(queue.explain(task_id))


def test_a_child_that_comes_alive_again_and_ends_again_counts_once(queue: Face, double: Any):
    """On PostgreSQL the statement that ends children counts them, and the trigger what a person does to them."""

    @queue.task
    def parent(ctx: TaskContext) -> int:
        return ctx.map(double, [{"n": n} for n in range(3)]).total

    task_id = parent.submit()
    drain(queue)
    assert queue.read(task_id).result == {"value": 3}
    folded, not_yet = "SELECT sum(ended) FROM tasklib_groups", "SELECT coalesce(sum(ended), 0) FROM tasklib_tallies"
    counted = f"SELECT ({folded}) + ({not_yet}) AS ended"
    child = queue.list(name="double")[0]
    for _ in range(2):
        queue.retry(child.id)
        assert queue.sql(counted) == [{"ended": 2}]
        drain(queue)
        assert queue.sql(counted) == [{"ended": 3}]
    queue.sql(f"UPDATE tasks SET state = 'pending', completed_at = NULL, result = NULL WHERE id = '{child.id}'")
    queue.sql(f"UPDATE tasks SET state = 'completed', completed_at = '2030-01-01 12:00:00' WHERE id = '{child.id}'")
    assert queue.sql(counted) == [{"ended": 3}]


def test_a_claimed_child_says_that_it_is_one(queue: Face, double: Any):
    """Also where it has nothing else that most tasks do not have."""

    @queue.task
    def parent(ctx: TaskContext) -> int:
        return ctx.map(double, [{"n": n} for n in range(3)]).total

    parent.submit()
    queue.process_batch(1)
    worker = queue.worker("double")
    for task in [worker.take(), worker.take(), worker.take()]:
        assert task.marks == MEMBER
        assert (task.retry_count, task.headers, task.task("w").tags, task.waited) == (0, {}, {}, pytest.approx(0.0))
