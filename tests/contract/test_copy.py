"""Copying workflows to another database, of the other kind: they go on there from where they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasklib import AsyncTaskContext, TaskContext, TaskState
from tasklib.service.administration import Administration
from tasklib.storage.operations import copy as operations
from tasklib.storage.operations.workflows.events import deliver_new
from tasklib.storage.operations.workflows.groups import fold_groups
from tests.contract.test_groups import drain
from tests.contract.test_steps import Calls, calls
from tests.fixtures.queues import Face, open_queue

__all__ = ["calls"]


@pytest.fixture
def target(queue: Face, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Face]:
    url = request.getfixturevalue("newest_postgres_url") if queue.is_sqlite else f"sqlite:///{tmp_path}/target.db"
    with open_queue(url) as face:
        yield face


def copy(source: Face, target: Face) -> int:
    return Administration(source.plain).copy_to(target.plain, by="ada", progress=lambda _: None).copied


def shipping_on(queue: Face, calls: Calls) -> Any:
    @queue.task(name="shipping")
    async def shipping(ctx: AsyncTaskContext, order: int) -> list[Any]:
        await ctx.step(calls.note, f"reserved {order}")
        return [await ctx.wait(f"shipped:{order}", str), await ctx.wait("invoice", str)]

    return shipping


def doubling_on(queue: Face, calls: Calls) -> tuple[Any, Any]:
    @queue.task(name="double", max_retries=0)
    def double(n: int) -> int:
        if n < 0:
            raise ValueError(f"{n} is negative")
        calls.note(2 * n)
        return 2 * n

    @queue.task(name="doubling")
    def doubling(ctx: TaskContext, numbers: list[int]) -> list[int]:
        group = ctx.map(double, ({"n": n} for n in numbers))
        return [group.total, group.failed, group.cancelled]

    return double, doubling


def adding_on(queue: Face, calls: Calls) -> Any:
    @queue.task(name="add", max_retries=0)
    def add(a: int, b: int = 0) -> int:
        calls.note(a + b)
        return a + b

    return add


def test_copied_failures_stay_in_their_groups(queue: Face, target: Face, calls: Calls) -> None:
    task, same = doubling_on(queue, calls)[0], doubling_on(target, calls)[0]
    task.submit(-1)
    queue.plain.process_batch()
    copy(queue, target)
    target.plain.resume()
    same.submit(-1)
    target.plain.process_batch()
    assert [group.count for group in target.plain.errors()] == [2]


def test_a_workflow_that_waits_for_an_event_goes_on_after_its_recorded_step(queue: Face, target: Face, calls: Calls):
    task_id = shipping_on(queue, calls).submit(7)
    queue.process_batch()
    queue.emit("invoice", "I-1", to=task_id)

    assert copy(queue, target) == 1
    shipping_on(target, calls)
    drain(target)

    task = target.read(task_id)
    assert (task.state, task.waits_for, task.due_at) == (TaskState.PENDING, "event shipped:7", None)
    recorded = "SELECT key, number, kind, state, version, digest, tries FROM tasklib_steps ORDER BY number"
    assert target.sql(recorded) == queue.sql(recorded)
    target.emit("shipped:7", "XY")
    drain(target)
    assert target.read(task_id).result == {"value": ["XY", "I-1"]}
    assert calls == ["reserved 7"]


def test_facts_are_copied_and_those_known_there_reach_who_comes_to_wait(queue: Face, target: Face, calls: Calls):
    waiting = shipping_on(queue, calls).submit(1)
    queue.process_batch()
    queue.emit("invoice", "for all")
    target.emit("shipped:1", "told before")
    target.emit("invoice:other")

    copy(queue, target)
    shipping_on(target, calls)
    target.plain.database.run(deliver_new)
    drain(target)

    assert target.read(waiting).result == {"value": ["told before", "for all"]}
    assert calls == ["reserved 1"]


def test_a_map_in_progress_is_finished_and_counts_every_child_once(queue: Face, target: Face, calls: Calls):
    """Of six children one has completed, one failed, one was cancelled, one is gone; two have not begun."""
    _, doubling = doubling_on(queue, calls)
    parent = doubling.submit([1, -2, 3, 4, 5, 6])
    queue.process_batch(limit=1)
    children = {child.kwargs["n"]: child.id for child in queue.list(name="double")}
    queue.cancel(children[3])
    queue.pause("double")
    queue.sql(f"UPDATE tasks SET priority = 9 WHERE id IN ('{children[1]}', '{children[-2]}', '{children[4]}')")
    queue.resume("double")
    queue.process_batch(limit=3)
    queue.delete(children[4])
    assert sorted(calls) == [2, 8]

    assert copy(queue, target) == 6
    doubling_on(target, calls)
    assert target.read(parent).waits_for == "children double"
    drain(target)
    target.plain.database.run(fold_groups)
    drain(target)

    assert target.read(parent).result == {"value": [6, 1, 1]}
    assert sorted(calls) == [2, 8, 10, 12]


def test_a_copy_while_workers_run_there_ends_no_group_early(
    queue: Face, target: Face, calls: Calls, monkeypatch: pytest.MonkeyPatch
):
    """The target adds up and works after every few tasks that have come."""
    monkeypatch.setattr(operations, "STEP", 2)
    _, doubling = doubling_on(queue, calls)
    parent = doubling.submit([1, 2, 3, 4, 5])
    queue.process_batch(limit=1)
    add = adding_on(queue, calls)
    flow = queue.flow("sum")
    one, two, three = (flow.add(add.bind(100 * n)) for n in (1, 2, 3))
    last = flow.add(add.bind(flow.add(add.bind(one.result, two.result)).result, three.result))
    queue.via(flow).submit()
    queue.process_batch(limit=3)

    doubling_on(target, calls)
    adding_on(target, calls)

    def work(_: int) -> None:
        target.plain.database.run(fold_groups)
        drain(target)

    Administration(queue.plain).copy_to(target.plain, by="ada", progress=work)
    work(0)

    assert target.read(parent).result == {"value": [5, 0, 0]}
    assert target.read(last.id).result == {"value": 600}
    assert sorted(calls) == [2, 4, 6, 8, 10, 100, 200, 300, 300, 600]


def test_copying_again_repeats_nothing(queue: Face, target: Face, calls: Calls):
    _, doubling = doubling_on(queue, calls)
    task_id, parent = shipping_on(queue, calls).submit(7), doubling.submit([1, 2, -3])
    queue.process_batch(limit=2)
    queue.process_batch(limit=1)
    queue.emit("invoice", "I-1", to=task_id)

    assert (copy(queue, target), copy(queue, target)) == (5, 0)
    doubling_on(target, calls)
    shipping_on(target, calls)
    target.emit("shipped:7", "XY")
    target.plain.database.run(fold_groups)
    drain(target)
    assert copy(queue, target) == 0
    target.plain.database.run(fold_groups)

    assert target.read(task_id).result == {"value": ["XY", "I-1"]}
    assert target.read(parent).result == {"value": [3, 1, 0]}
    assert target.sql("SELECT ended, failed FROM tasklib_groups") == [{"ended": 3, "failed": 1}]
    assert sorted(calls, key=str) == [2, 4, "reserved 7"]


def test_children_of_a_workflow_that_was_cancelled_are_cancelled_there_too(queue: Face, target: Face, calls: Calls):
    _, doubling = doubling_on(queue, calls)
    parent = doubling.submit([1, 2])
    queue.process_batch(limit=1)
    queue.cancel(parent)

    copy(queue, target)
    doubling_on(target, calls)
    target.plain.database.run(fold_groups)
    drain(target)

    assert [task.state for task in target.list()] == [TaskState.CANCELLED] * 3
    assert calls == []


def test_what_was_done_and_removed_there_does_not_come_again(queue: Face, target: Face, calls: Calls):
    _, doubling = doubling_on(queue, calls)
    doubling.submit([1, 2])
    queue.process_batch(limit=1)
    queue.emit("holiday")

    assert copy(queue, target) == 3
    double, _ = doubling_on(target, calls)
    drain(target)
    target.plain.database.run(fold_groups)
    drain(target)
    assert sorted(calls) == [2, 4]
    assert target.delete_many(state="completed") == 3
    target.emit("holiday", withdraw=True)
    target.plain.database.run(fold_groups)
    queue.resume()
    drain(queue)  # in vain: these tasks were handed over
    adding_on(queue, calls).submit(8)

    assert copy(queue, target) == 1
    assert [task.name for task in target.list()] == ["add"]
    for table in ("tasklib_groups", "tasklib_events"):
        assert target.sql(f"SELECT * FROM {table}") == []
    double.submit(5)
    assert copy(queue, target) == 0


def test_a_copy_that_was_cut_off_goes_on_where_it_was(
    queue: Face, target: Face, calls: Calls, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(operations, "STEP", 2)
    double, _ = doubling_on(queue, calls)
    for number in range(5):
        double.submit(number)

    def cut(_: int) -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        Administration(queue.plain).copy_to(target.plain, by="ada", progress=cut)
    doubling_on(target, calls)
    drain(target)
    assert target.delete_many(state="completed") == 2

    assert copy(queue, target) == 3
    drain(target)
    assert sorted(calls) == [0, 2, 4, 6, 8]


def test_a_task_that_found_its_unique_key_taken_comes_with_a_later_copy(queue: Face, target: Face):
    task_id = queue.enqueue("job", unique_key="one")
    holder = target.enqueue("job", unique_key="one")

    assert copy(queue, target) == 0
    target.cancel(holder)
    assert copy(queue, target) == 1
    assert target.read(task_id).state is TaskState.PENDING
