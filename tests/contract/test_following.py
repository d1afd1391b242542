"""Children with a unique key: a live task that holds it is followed, counted once, and never waits for its follower."""

from __future__ import annotations

from typing import Any

import pytest

from tasklib import AsyncTaskContext, TaskState
from tasklib.storage.operations.workflows.groups import fold_groups, open_group, rows_of, show_tree
from tests.contract.test_groups import drain
from tests.contract.test_steps import Calls, calls
from tests.fixtures.queues import Face

__all__ = ["calls"]


@pytest.fixture
def report(queue: Face, calls: Calls) -> Any:
    @queue.task(max_retries=0)
    def report(n: int) -> int:
        calls.note(n)
        if n < 0:
            raise ValueError(f"{n} is negative")
        return 2 * n

    return report


@pytest.fixture
def follower(queue: Face, report: Any) -> Any:
    @queue.task(max_retries=0)
    async def follower(ctx: AsyncTaskContext, n: int) -> int:
        return await ctx.run(report.options(unique_key="daily").bind(n))

    return follower


def test_a_child_whose_key_is_held_is_followed_and_its_result_is_theirs(
    queue: Face, calls: Calls, report: Any, follower: Any
):
    holder = report.options(unique_key="daily", delay_seconds=60).submit(21)
    followers = [follower.submit(n) for n in (1, 2)]
    drain(queue)
    assert queue.read(followers[0]).waits_for == "children report"
    (group,) = queue.do(lambda: show_tree(followers[0]))["groups"]
    assert [each["id"] for each in group["children"]] == [str(holder)]
    queue.advance(60)
    drain(queue)

    assert [queue.read(each).result for each in followers] == [{"value": 42}] * 2
    assert (list(calls), queue.count(name="report")) == ([21], 1)
    assert queue.read(holder).state is TaskState.COMPLETED


def test_a_key_that_nobody_holds_makes_a_child_that_others_follow(queue: Face, calls: Calls, follower: Any):
    followers = [follower.submit(n) for n in (1, 2, 3)]
    drain(queue)

    assert len({queue.read(each).result["value"] for each in followers}) == 1
    assert len(calls) == 1


def test_whoever_follows_does_not_cancel_and_fails_with_what_it_follows(queue: Face, report: Any, follower: Any):
    holder = report.options(unique_key="daily", delay_seconds=60).submit(-1)
    cancelled, failed = follower.submit(1), follower.submit(2)
    drain(queue)
    queue.cancel(cancelled)
    queue.do(fold_groups)
    assert queue.read(holder).state is TaskState.PENDING
    queue.advance(60)
    drain(queue)

    assert "-1 is negative" in (queue.read(failed).error or "")
    queue.retry(failed)
    drain(queue)
    assert queue.read(failed).result == {"value": 4}


@pytest.mark.parametrize("how", ["cancel", "delete"])
def test_the_end_of_what_is_followed_counts_however_it_comes(queue: Face, report: Any, follower: Any, how: str):
    holder = report.options(unique_key="daily", delay_seconds=60).submit(1)
    task_id = follower.submit(2)
    drain(queue)
    queue.cancel(holder) if how == "cancel" else queue.sql(f"DELETE FROM tasks WHERE id = '{holder}'")
    drain(queue)

    assert queue.read(task_id).state is TaskState.FAILED
    queue.retry(task_id)
    drain(queue)
    assert queue.read(task_id).result == {"value": 4}
    assert queue.sql("SELECT * FROM tasklib_tallies") == []


def test_no_workflow_waits_for_itself(queue: Face):
    """Directly, through its own child, and in a circle of three that follow each other."""

    @queue.task(max_retries=0)
    async def link(ctx: AsyncTaskContext, next: str) -> None:
        if next == "child":
            await ctx.run(link.bind("own"))
        await ctx.run(link.options(unique_key=next).bind("?"))

    for keys in (["own"], ["own", "child"]):
        task_id = link.options(unique_key="own").submit(keys[-1])
        drain(queue)
        assert "would wait for itself" in (queue.read(task_id).error or ""), keys
    circle = [
        link.options(unique_key=own, delay_seconds=delay).submit(after)
        for own, after, delay in (("a", "b", 1), ("b", "c", 2), ("c", "a", 3))
    ]
    for _ in circle:
        queue.advance(1)
        drain(queue)
    errors = [queue.read(each).error or "" for each in circle]
    assert all("would wait for itself" in error for error in errors)
    assert ["TaskFailed" in error for error in errors] == [True, True, False]


@pytest.mark.parametrize("is_folded", [False, True])
def test_a_follow_that_is_sent_again_after_its_holder_has_ended_changes_nothing(
    queue: Face, report: Any, follower: Any, is_folded: bool
):
    holder = report.options(unique_key="daily", delay_seconds=60).submit(1)
    task_id = follower.submit(2)
    claimed = queue.worker("follower").take()
    child = rows_of([report.options(unique_key="daily").bind(2).new])
    step = {"key": "report", "number": 1, "kind": "run", "state": "open", "tries": 0, "started_ago": 0}
    request = {"step": step, "group": {"id": str(task_id), "sealed": True, "max_failures": None}, "rows": child}
    queue.do(lambda: open_group(claimed.id, claimed.version, **request))
    queue.cancel(holder)
    if is_folded:
        queue.do(fold_groups)
    queue.do(lambda: open_group(claimed.id, claimed.version, **request))
    queue.do(fold_groups)

    assert queue.count(name="report") == 1
    assert queue.sql("SELECT state FROM tasklib_steps") == [{"state": "failed"}]
