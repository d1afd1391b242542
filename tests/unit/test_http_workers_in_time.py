"""Workers over HTTP on virtual time: long polls, timeouts and recovery come at their exact moments."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from tasklib import Config, Task, TaskQueue
from tasklib.core.time.virtual_time import VirtualTiming
from tasklib.service.http_workers.waiting_claims import LOOK_SECONDS
from tasklib.service.http_workers.workers import HttpWorkers, OwnedInstance, Registration
from tests.fixtures.virtual import START, on_virtual_time

OWNER = "ada"
TIMEOUT = 30.0
TICK = timedelta(milliseconds=10)
"""The service waits for no less than this."""


class Site:
    """A service, and one worker that speaks to it."""

    def __init__(self, queue: TaskQueue) -> None:
        self.queue = queue
        self.service = HttpWorkers(queue, threading.Event())
        self.who = OwnedInstance(uuid4(), OWNER)

    async def register(self) -> None:
        await self.service.aregister(Registration(self.who.instance, "w", "host", 1, TIMEOUT, 1, ("job",), owner=OWNER))

    async def claim(self, seconds: float = 0.0) -> list[Task]:
        """One task, waited for at most so long."""
        found = await self.service.claim(self.who, 1, seconds, self._is_gone)
        assert found is not None, "the worker is not known"
        return list(found)

    @staticmethod
    async def _is_gone() -> bool:
        return False


@pytest.fixture
def site(timing: VirtualTiming) -> Iterator[Site]:
    config = Config("sqlite:///:memory:", worker_timeout_seconds=TIMEOUT, lock_timeout_seconds=600)
    with TaskQueue(config, clock=timing.clock, timing=timing) as queue:
        yield Site(queue)


@on_virtual_time
async def test_a_claim_waits_as_long_as_it_was_told(timing: VirtualTiming, site: Site):
    await site.register()

    assert await site.claim(25) == []
    assert timing.monotonic() == 25
    await site.service.stop()


@on_virtual_time
async def test_a_claim_that_waits_gets_a_task_the_moment_it_is_due(timing: VirtualTiming, site: Site):
    await site.register()
    await site.queue.aenqueue("job", delay_seconds=LOOK_SECONDS + 0.75)

    [(task, _)] = await site.claim(25)

    assert task.started_at is not None
    assert TICK >= task.started_at - START - timedelta(seconds=LOOK_SECONDS + 0.75) >= timedelta(0)
    await site.service.stop()


@on_virtual_time
async def test_a_claim_that_waits_is_woken_by_a_new_task(timing: VirtualTiming, site: Site):
    await site.register()
    claiming = asyncio.ensure_future(site.claim(25))
    await asyncio.sleep(0.3)
    await site.queue.aenqueue("job")

    assert len(await claiming) == 1
    assert timing.monotonic() == 0.3
    await site.service.stop()


@on_virtual_time
async def test_the_service_ends_an_attempt_when_its_timeout_has_passed(timing: VirtualTiming, site: Site):
    await site.register()
    task_id = await site.queue.aenqueue("job", timeout_seconds=12.5, max_attempts=1)
    await site.claim()
    for _ in range(4):
        await asyncio.sleep(5)
        await site.service.beat(site.who)

    task = await site.queue.aget(task_id)
    assert task is not None
    assert task.state == "failed"
    assert task.completed_at is not None
    assert TICK >= task.completed_at - START - timedelta(seconds=12.5) >= timedelta(0)
    await site.service.stop()


@on_virtual_time
async def test_a_worker_that_falls_silent_loses_its_tasks_after_its_timeout(timing: VirtualTiming, site: Site):
    await site.register()
    task_id = await site.queue.aenqueue("job")
    await site.claim()
    await site.service.beat(site.who)

    await asyncio.sleep(TIMEOUT)
    assert (await site.queue.aget(task_id)).state == "running"  # type: ignore[union-attr]
    await asyncio.sleep(TIMEOUT / 2)
    assert (await site.queue.aget(task_id)).state != "running"  # type: ignore[union-attr]
    await site.service.stop()
