"""The kit for users' tests, for workflows: sleeps pass, and a function that begins anew after each step."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tasklib import AsyncTaskContext, Task, TaskContext, TaskQueue
from tasklib.testing import TestTasks, isolated

queue = TaskQueue("postgresql://nobody@nowhere.invalid/production")
begun: list[str] = []


def double(n: int) -> int:
    begun.append(f"double {n}")
    return 2 * n


@queue.task
async def part(n: int) -> int:
    return n


@queue.task(context=True, max_retries=0)
async def awaiting(ctx: AsyncTaskContext) -> list[Any]:
    begun.append("top")
    first = await ctx.step(double, 1)
    both = await asyncio.gather(ctx.step(double, 2), ctx.step(double, 3))
    await ctx.sleep(86400)
    made = await ctx.map(part, [{"n": 7}, {"n": 8}])
    return [first, *both, *[each async for each in made.results()], await ctx.options(name="last").step(double, first)]


@queue.task(context=True, max_retries=0)
def blocking(ctx: TaskContext) -> list[int]:
    begun.append("top")
    found = [ctx.step(double, n) for n in (1, 2)]
    ctx.sleep(3600)
    return found


@queue.task(context=True, max_retries=0)
def by_chance(ctx: TaskContext) -> None:
    for n in range(3):
        ctx.options(name="draw").step(double, random.randrange(10**12) + n)


@queue.task(context=True, max_retries=0)
async def patient(ctx: AsyncTaskContext) -> int:
    await ctx.sleep(60)
    return await ctx.wait("number", int, timeout_seconds=3600)


@queue.task
def undo() -> None:
    begun.append("undo")


@queue.task(context=True, lifetime_seconds=3600, max_retries=50)
async def mortal(ctx: AsyncTaskContext, what: str) -> str:
    await ctx.options(undo=undo.bind()).step(double, 1)
    if what == "sleep":
        await ctx.sleep(86400)
    elif what == "wait":
        await ctx.wait("never", str)
    elif what == "run":
        await ctx.run(patient.bind())
    elif what == "fail":
        raise ValueError("again")
    elif what == "work":
        await asyncio.sleep(86400)
    return "lived"


@queue.task(context=True, lifetime_seconds=3600)
def mortal_by_chance(ctx: TaskContext) -> None:
    for n in range(2):
        ctx.options(name="draw", undo=undo.bind()).step(double, random.randrange(10**12) + n)
    ctx.sleep(10)


def found(task_id: UUID) -> Task:
    task = queue.get(task_id)
    assert task is not None
    return task


@pytest.fixture
def tasks() -> Iterator[TestTasks]:
    begun.clear()
    with isolated(queue) as tasks:
        yield tasks


def test_draining_passes_sleeps(tasks: TestTasks) -> None:
    task_id = awaiting.submit()
    tasks.drain()
    assert found(task_id).waits_for == "sleep"
    tasks.drain(advance=True)
    assert found(task_id).result == {"value": [2, 4, 6, 7, 8, 4]}
    assert begun.count("top") == 3


def test_draining_does_not_pass_the_patience_of_a_wait(tasks: TestTasks) -> None:
    task_id = patient.submit()
    tasks.drain(advance=True)
    assert found(task_id).waits_for == "event number"
    queue.emit("number", 5)
    tasks.drain(advance=True)
    assert found(task_id).result == {"value": 5}

    late = patient.submit()
    queue.emit("number", withdraw=True)
    tasks.drain(advance=True)
    tasks.work(hours=2)
    assert "WaitTimeout" in (found(late).error or "")


@pytest.mark.parametrize(
    "task, steps, value",
    [(awaiting, ["double 1", "double 2", "double 3", "double 2"], [2, 4, 6, 7, 8, 4]), (blocking, None, [2, 4])],
    ids=["awaiting", "blocking"],
)
def test_a_workflow_begins_anew_after_each_step_and_repeats_none(
    tasks: TestTasks, task: Any, steps: list[str] | None, value: Any
) -> None:
    task_id = task.submit()
    with tasks.restart_after_each_step():
        tasks.drain(advance=True)
    assert found(task_id).result == {"value": value}
    ran = [each for each in begun if each != "top"]
    assert sorted(ran) == sorted(steps or ["double 1", "double 2"])
    assert begun.count("top") > len(ran)
    assert queue.restarts_workflows is False


def test_a_workflow_that_goes_by_chance_is_found(tasks: TestTasks) -> None:
    plain = by_chance.submit()
    tasks.drain()
    assert found(plain).state == "completed"
    task_id = by_chance.submit()
    with tasks.restart_after_each_step():
        tasks.drain(advance=True)
    assert "NonDeterminism" in (found(task_id).error or "")


@pytest.mark.parametrize("what", ["sleep", "wait", "run", "fail", "work"])
def test_a_life_that_is_over_ends_a_workflow_whatever_it_does(tasks: TestTasks, what: str) -> None:
    task_id = mortal.submit(what)
    tasks.work(minutes=58)
    assert found(task_id).completed_at is None
    tasks.work(minutes=5)

    task = found(task_id)
    assert task.state == "failed"
    assert "its lifetime of 3600 s is over" in (task.error or "")
    assert begun == ["double 1", "undo"]
    assert {each.state for each in queue.list(name="patient")} <= {"cancelled"}


def test_a_life_begins_when_the_task_is_due_and_is_no_limit_for_one_that_ends_in_time(tasks: TestTasks) -> None:
    late, quick = mortal.options(delay_seconds=7200).submit("nothing"), mortal.submit("nothing")
    tasks.work(hours=3)

    assert found(late).result == found(quick).result == {"value": "lived"}


def test_a_parked_workflow_outlives_its_life_and_is_not_undone(tasks: TestTasks) -> None:
    task_id = mortal_by_chance.submit()
    tasks.work(hours=3)

    assert (found(task_id).waits_for or "").startswith("code")
    assert begun.count("undo") == 0
