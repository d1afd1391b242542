"""Virtual time: an event loop that jumps to its next timer, and a real worker that lives on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tasklib import Config, TaskQueue
from tasklib.core.time.virtual_time import VirtualTiming
from tasklib.worker import Worker, WorkerSettings
from tests.fixtures.virtual import START, on_virtual_time

DAY = 86_400.0


@pytest.fixture
def queue(timing: VirtualTiming) -> Iterator[TaskQueue]:
    config = Config(
        "sqlite:///:memory:",
        heartbeat_interval_seconds=3600,
        worker_timeout_seconds=36_000,
        lock_timeout_seconds=60,
        poll_interval_seconds=600,
        retry_jitter=0.0,
    )
    with TaskQueue(config, clock=timing.clock, timing=timing) as made:
        yield made


class Life:
    """What ran, and when."""

    def __init__(self, timing: VirtualTiming) -> None:
        self._timing = timing
        self.moments: list[float] = []

    def note(self) -> None:
        self.moments.append(self._timing.monotonic())


@pytest.fixture
def life(timing: VirtualTiming) -> Life:
    return Life(timing)


async def work(queue: TaskQueue, seconds: float, **settings: Any) -> None:
    """Let a worker work for so long, and drain."""
    worker = asyncio.ensure_future(queue.arun(4, **settings))
    await asyncio.sleep(seconds)
    worker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await worker


@on_virtual_time
async def test_time_passes_when_nothing_can_run_and_in_the_order_of_timers(timing: VirtualTiming):
    order: list[tuple[str, float]] = []

    async def sleep(name: str, seconds: float) -> None:
        await timing.sleep(seconds)
        order.append((name, timing.monotonic()))

    await asyncio.gather(sleep("c", 3600), sleep("a", 0.5), sleep("b", 60))

    assert order == [("a", 0.5), ("b", 60), ("c", 3600)]
    assert timing.clock.now() == START + timedelta(hours=1)


@on_virtual_time
async def test_time_moves_in_whole_milliseconds_and_no_timer_goes_off_early(timing: VirtualTiming):
    await timing.sleep(0.0004)
    assert timing.monotonic() == 0.001


@on_virtual_time
async def test_waits_and_timeouts_end_at_their_moment(timing: VirtualTiming):
    event = asyncio.Event()
    assert not await timing.wait(event, 10)
    timing.call_later(5, event.set)
    assert await timing.wait(event, 10)
    assert timing.monotonic() == 15
    with pytest.raises(TimeoutError):
        async with timing.timeout(7):
            await asyncio.Event().wait()
    assert timing.monotonic() == 22


@on_virtual_time
async def test_time_stands_still_while_a_thread_works(timing: VirtualTiming):
    may_end, sleeping = threading.Event(), asyncio.ensure_future(timing.sleep(3600))
    working = asyncio.ensure_future(asyncio.to_thread(may_end.wait))
    for _ in range(100):
        await asyncio.sleep(0)
    assert (sleeping.done(), timing.monotonic()) == (False, 0)
    may_end.set()
    await working
    assert timing.monotonic() == 0
    await sleeping
    assert timing.monotonic() == 3600


@on_virtual_time
async def test_a_day_of_a_worker(timing: VirtualTiming, queue: TaskQueue, life: Life):
    @queue.schedule(cron="0 * * * *")
    @queue.task
    async def hourly() -> None:
        life.note()
        await asyncio.sleep(6)

    await work(queue, DAY + 120)

    assert life.moments == [hour * 3600 for hour in range(25)]
    assert queue.count(state="completed") == 25
    ran = [(task.completed_at - task.started_at).total_seconds() for task in queue.list()]  # type: ignore[operator]
    assert set(ran) == {6}


@on_virtual_time
async def test_retries_come_after_their_delays(timing: VirtualTiming, queue: TaskQueue, life: Life):
    @queue.task(max_retries=4)
    async def fails() -> None:
        life.note()
        raise OSError("no route")

    await fails.asubmit()
    await work(queue, 600)

    base = queue.config.base_retry_delay_seconds
    delays = [base * 2**n for n in range(4)]
    assert life.moments == [sum(delays[:n]) for n in range(5)]
    assert queue.list()[0].state == "failed"


@on_virtual_time
async def test_a_timeout_ends_a_coroutine_at_its_moment(timing: VirtualTiming, queue: TaskQueue, life: Life):
    @queue.task(timeout_seconds=90, max_retries=0)
    async def hangs() -> None:
        try:
            await asyncio.sleep(DAY)
        finally:
            life.note()

    await hangs.asubmit()
    await work(queue, 600)

    assert life.moments == [90]
    assert queue.list()[0].completed_at == START + timedelta(seconds=90)


@on_virtual_time
async def test_a_row_without_a_timeout_has_that_of_the_worker_settings(timing: VirtualTiming, life: Life):
    config = Config("sqlite:///:memory:", default_task_timeout_seconds=90, poll_interval_seconds=600)
    with TaskQueue(config, clock=timing.clock, timing=timing) as queue:

        @queue.task(name="hangs", max_retries=0)
        async def hangs() -> None:
            try:
                await asyncio.sleep(DAY)
            finally:
                life.note()

        await queue.aadd_schedule("seldom", task="hangs", every=DAY)
        await queue.arun_schedule("seldom")
        await work(queue, 600)

    assert life.moments == [90]


@on_virtual_time
async def test_leases_are_renewed_for_as_long_as_a_task_runs(timing: VirtualTiming, queue: TaskQueue, life: Life):
    @queue.task
    async def long() -> None:
        life.note()
        await asyncio.sleep(5 * queue.config.lock_timeout_seconds)

    await long.asubmit()
    await work(queue, 6 * queue.config.lock_timeout_seconds)

    [task] = queue.list()
    assert (life.moments, task.state, task.attempts) == ([0], "completed", 1)


@on_virtual_time
async def test_a_plain_function_takes_no_time(timing: VirtualTiming, queue: TaskQueue, life: Life):
    queue.register_handler("job", lambda payload: life.note())
    for n in range(10):
        await queue.aenqueue("job", {"n": n}, delay_seconds=n)
    await work(queue, 60)

    assert life.moments == list(range(10))


@on_virtual_time
async def test_a_delayed_task_starts_at_its_moment_however_rarely_the_worker_polls(
    timing: VirtualTiming, queue: TaskQueue, life: Life
):
    queue.register_handler("job", lambda payload: life.note())
    await queue.aenqueue("job", delay_seconds=1234.5)
    await work(queue, 3600, poll_interval_seconds=3600)

    assert life.moments == [1234.5]


@on_virtual_time
async def test_a_second_stop_does_not_wait_for_running_tasks(timing: VirtualTiming, queue: TaskQueue, life: Life):
    async def job(payload: Any) -> None:
        try:
            await asyncio.sleep(DAY)
        finally:
            life.note()

    queue.register_handler("job", job)
    await queue.aenqueue("job")
    worker = Worker(queue, WorkerSettings(signals=False, grace_seconds=DAY))
    running = asyncio.ensure_future(worker.run())
    for moment in (10, 20):
        timing.call_later(moment, worker.stop)
    await running

    assert (life.moments, timing.monotonic()) == ([20], 20)


@on_virtual_time
async def test_a_worker_that_stops_gives_running_tasks_their_grace_and_no_more(
    timing: VirtualTiming, queue: TaskQueue, life: Life
):
    async def job(payload: Any) -> None:
        try:
            await asyncio.sleep(payload["seconds"])
        finally:
            life.note()

    queue.register_handler("job", job)
    await queue.aenqueue("job", {"seconds": 20})
    await queue.aenqueue("job", {"seconds": DAY})
    await work(queue, 10, grace_seconds=30)

    assert life.moments == [20, 40]
    assert [task.state for task in queue.list()] == ["pending", "completed"]
