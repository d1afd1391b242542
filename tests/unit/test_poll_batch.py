"""The batch of a poll: what is asked together with an idle worker's poll, and what happens if that does not come."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tasklib import Config, TaskQueue
from tasklib.core.time.virtual_time import VirtualTiming
from tasklib.errors import DatabaseUnavailable
from tasklib.storage.operations.clock import read_clock
from tasklib.storage.statement import Operation
from tasklib.worker.upkeep.poll_batch import PollBatch
from tests.fixtures.virtual import on_virtual_time


@pytest.fixture
def batch(timing: VirtualTiming) -> Iterator[PollBatch]:
    with TaskQueue(Config("sqlite:///:memory:"), clock=timing.clock, timing=timing) as queue:
        yield PollBatch(queue.database, timing)


def answering(value: str) -> Operation[str]:
    yield from read_clock()
    return value


def failing() -> Operation[str]:
    yield from read_clock()
    raise DatabaseUnavailable("it is away")


@on_virtual_time
async def test_what_waits_for_a_poll_is_answered_by_it(timing: VirtualTiming, batch: PollBatch):
    batch.expect_poll(1)
    waiting = [asyncio.ensure_future(batch.run(lambda v=v: answering(v), within=1)) for v in "ab"]
    await asyncio.sleep(0.5)
    assert not any(each.done() for each in waiting)
    assert await batch.poll(lambda: answering("look")) == "look"
    assert await asyncio.gather(*waiting) == ["a", "b"]


@on_virtual_time
async def test_without_a_poll_in_time_it_is_asked_at_once(timing: VirtualTiming, batch: PollBatch):
    assert await batch.run(lambda: answering("a"), within=1) == "a"
    batch.expect_poll(2)
    assert await batch.run(lambda: answering("b"), within=1) == "b"


@on_virtual_time
async def test_a_poll_that_does_not_come_leaves_nobody_waiting(timing: VirtualTiming, batch: PollBatch):
    batch.expect_poll(1)
    waiting = asyncio.ensure_future(batch.run(lambda: answering("a"), within=1))
    await asyncio.sleep(0.5)
    batch.no_poll()
    assert await waiting == "a"


@on_virtual_time
async def test_an_operation_that_fails_fails_alone(timing: VirtualTiming, batch: PollBatch):
    batch.expect_poll(1)
    good = asyncio.ensure_future(batch.run(lambda: answering("a"), within=1))
    bad = asyncio.ensure_future(batch.run(failing, within=1))
    await asyncio.sleep(0.5)
    assert await batch.poll(lambda: answering("look")) == "look"
    assert await good == "a"
    with pytest.raises(DatabaseUnavailable):
        await bad


@on_virtual_time
async def test_who_was_stopped_is_not_asked_for(timing: VirtualTiming, batch: PollBatch):
    batch.expect_poll(1)
    stopped = asyncio.ensure_future(batch.run(failing, within=1))
    await asyncio.sleep(0.5)
    stopped.cancel()
    assert await batch.poll(lambda: answering("look")) == "look"
    assert stopped.cancelled()
