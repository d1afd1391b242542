"""An idle worker: what it sends in five minutes, counted on virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tasklib import AsyncTaskContext, Config, TaskQueue
from tasklib.core.time.virtual_time import VirtualTiming
from tasklib.storage.operations.workflows import events
from tasklib.worker.upkeep.groups import SHORTEST_PAUSE
from tests.fixtures.virtual import on_virtual_time

MINUTES = 300.0


@pytest.fixture
def queue(timing: VirtualTiming) -> Iterator[TaskQueue]:
    with TaskQueue(Config("sqlite:///:memory:"), clock=timing.clock, timing=timing) as made:
        made.task(name="job")(lambda: None)
        yield made


@pytest.fixture
def sent(queue: TaskQueue, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each operation was run."""
    counted: Counter[str] = Counter()
    run = queue.database.arun

    def arun(make: Callable[[], Any], **how: Any) -> Any:
        def made() -> Any:
            operation = make()
            counted[operation.__name__] += 1
            return operation

        return run(made, **how)

    monkeypatch.setattr(queue.database, "arun", arun)
    return counted


async def idle(queue: TaskQueue, seconds: float) -> None:
    worker = asyncio.ensure_future(queue.arun(4))
    await asyncio.sleep(seconds)
    worker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await worker


async def oldest_heartbeat(timing: VirtualTiming, queue: TaskQueue, seconds: float) -> float:
    """The greatest age of a worker's heartbeat while it runs for so long."""
    ages: list[float] = []
    worker = asyncio.ensure_future(idle(queue, seconds))
    while not worker.done():
        await asyncio.sleep(0.5)
        now = timing.clock.now()
        ages += [(now - each.heartbeat_at).total_seconds() for each in queue.workers()]
    await worker
    return max(ages)


@on_virtual_time
async def test_nobody_looks_for_events_and_children_while_the_claimer_looks_for_all(
    timing: VirtualTiming, queue: TaskQueue, sent: Counter[str]
):
    await idle(queue, MINUTES)

    polls = sent["look_around"] + sent["_together"]
    assert polls == pytest.approx(MINUTES, rel=0.35)
    assert sum(sent.values()) - polls < MINUTES / 12, sent
    assert sent["claim_tasks"] < MINUTES / 100
    assert sent["fold_groups"] + sent["deliver_new"] < MINUTES / 50


@on_virtual_time
async def test_heartbeats_that_go_with_polls_are_never_late(timing: VirtualTiming, queue: TaskQueue):
    assert await oldest_heartbeat(timing, queue, 60) <= queue.config.heartbeat_interval_seconds + 0.5


@on_virtual_time
async def test_a_worker_with_something_to_do_sends_its_heartbeats_too(timing: VirtualTiming, queue: TaskQueue):
    @queue.task
    async def long() -> None:
        await asyncio.sleep(60)

    long.submit()
    assert await oldest_heartbeat(timing, queue, 50) <= queue.config.heartbeat_interval_seconds + 0.5


@on_virtual_time
async def test_an_event_that_nobody_announced_is_delivered_within_a_poll_interval(
    timing: VirtualTiming, queue: TaskQueue, sent: Counter[str]
):
    worker = asyncio.ensure_future(idle(queue, 60))
    await asyncio.sleep(30)
    queue.database.run(lambda: events.emit("paid", "{}", None, None))
    before = sent["deliver_new"]
    await asyncio.sleep(1.3)
    assert sent["deliver_new"] > before
    await worker


@on_virtual_time
async def test_a_workflow_goes_on_as_soon_as_its_last_child_has_ended(timing: VirtualTiming, queue: TaskQueue):
    """Ends of children are added up together, but nobody waits for others where this worker holds none."""
    moments: list[float] = []

    @queue.task
    async def child() -> None:
        moments.append(timing.monotonic())

    @queue.task
    async def parent(ctx: AsyncTaskContext) -> None:
        await ctx.run(child.bind())
        moments.append(timing.monotonic())

    working = asyncio.ensure_future(idle(queue, 10))
    await parent.asubmit()
    await working
    ended, went_on = moments
    assert went_on - ended < SHORTEST_PAUSE
