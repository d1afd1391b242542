"""A worker while its database is away: it waits, gives up what others may take over, and stops in time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tasklib import Config, TaskQueue
from tasklib.core.retry import OUTAGE_PAUSE
from tasklib.core.time.virtual_time import VirtualTiming
from tasklib.errors import DatabaseUnavailable
from tasklib.storage.operations.workers import recover_from
from tasklib.storage.statement import Operation
from tasklib.worker import Worker, WorkerSettings
from tasklib.worker.upkeep.self_fence import GIVE_UP
from tasklib.worker.worker import RECORD_SECONDS
from tests.fixtures.virtual import on_virtual_time
from tests.fixtures.waiting import PATIENCE


class Cut:
    """A database that can be away, and whose answers can get lost."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self.is_away = False
        self.loses_answers_to: set[str] = set()
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def run(self, make: Callable[[], Operation[Any]], *, repeatable: bool = True) -> Any:
        self._check()
        return self._database.run(make, repeatable=repeatable)

    def subscribe(self, listener: Callable[[str], None]) -> Callable[[], None]:
        self._check()
        return self._database.subscribe(listener)

    async def arun(self, make: Callable[[], Operation[Any]], *, repeatable: bool = True) -> Any:
        self._check()
        names: list[str] = []

        def noted() -> Operation[Any]:
            operation = make()
            names.append(operation.__name__)
            return operation

        answer = await self._database.arun(noted, repeatable=repeatable)
        self.calls += names
        if self.loses_answers_to & set(names):
            self.loses_answers_to -= set(names)
            raise DatabaseUnavailable("the answer got lost")
        return answer

    def _check(self) -> None:
        if self.is_away:
            raise DatabaseUnavailable("away")


TIMEOUT = 30.0
BEAT = 5.0


@pytest.fixture
def queue(timing: VirtualTiming) -> Iterator[TaskQueue]:
    config = Config("sqlite:///:memory:", worker_timeout_seconds=TIMEOUT, heartbeat_interval_seconds=BEAT)
    with TaskQueue(config, clock=timing.clock, timing=timing) as made:
        yield made


@pytest.fixture
def cut(queue: TaskQueue) -> Cut:
    queue.count()
    queue._database = Cut(queue.database)  # type: ignore[assignment]
    return queue._database  # type: ignore[return-value]


@asynccontextmanager
async def working(queue: TaskQueue, **settings: Any) -> AsyncIterator[Worker]:
    worker = Worker(queue, WorkerSettings(**{"concurrency": 4, "signals": False} | settings))
    running = asyncio.ensure_future(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await running


@on_virtual_time
async def test_a_worker_that_starts_while_the_database_is_away_begins_when_it_is_back(
    timing: VirtualTiming, queue: TaskQueue, cut: Cut, caplog: pytest.LogCaptureFixture
):
    ran: list[Any] = []
    queue.register_handler("job", ran.append)
    await queue.aenqueue("job")
    cut.is_away = True

    async with working(queue):
        await asyncio.sleep(600)
        assert ran == []
        cut.is_away = False
        await asyncio.sleep(OUTAGE_PAUSE.cap + 0.1)

    assert len(ran) == 1
    assert caplog.text.count("trying until the database is back") == 1


@on_virtual_time
async def test_a_worker_told_to_stop_while_the_database_is_away_stops_in_time(
    timing: VirtualTiming, queue: TaskQueue, cut: Cut, caplog: pytest.LogCaptureFixture
):
    async def job(payload: Any) -> None:
        await asyncio.sleep(3600)

    queue.register_handler("job", job)
    task_id = await queue.aenqueue("job")
    async with working(queue, grace_seconds=3):
        await asyncio.sleep(10)
        cut.is_away = True
    assert timing.monotonic() == 10 + 3 + RECORD_SECONDS

    assert "other workers recover its tasks: it has not answered for 5 s" in caplog.text
    cut.is_away = False
    # Nobody has signed off, so others find out.
    assert (await queue.aget(task_id)).state == "running"  # type: ignore[union-attr]
    await asyncio.sleep(TIMEOUT)
    assert [worker.alive for worker in await queue.aworkers()] == [False]


@on_virtual_time
async def test_coroutines_are_given_up_before_others_take_over_and_threads_are_left_to_finish(
    timing: VirtualTiming, queue: TaskQueue, cut: Cut, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(timing, "expect", lambda outcome: None)  # Time passes while the thread waits.
    ended: list[float] = []
    release, thread_may_end = asyncio.Event(), threading.Event()

    async def coroutine(payload: Any) -> None:
        try:
            await release.wait()
        finally:
            ended.append(timing.monotonic())

    def thread(payload: Any) -> str:
        assert thread_may_end.wait(PATIENCE)
        return "from the thread"

    queue.register_handler("coroutine", coroutine)
    queue.register_handler("thread", thread)
    async with working(queue):
        ids = [await queue.aenqueue("coroutine"), await queue.aenqueue("thread")]
        await asyncio.sleep(2 * BEAT + 1)
        versions = [task.version for task in await queue.alist()]
        (worker,) = await queue.aworkers()
        beaten = timing.monotonic() - (timing.clock.now() - worker.heartbeat_at).total_seconds()
        cut.is_away = True
        await asyncio.sleep(TIMEOUT)
        # Measured from the last beat that arrived.
        assert ended == [pytest.approx(beaten + GIVE_UP * TIMEOUT)]
        release.set()
        thread_may_end.set()
        cut.is_away = False

        coroutine_task = await queue.await_(ids[0], timeout=600)
        thread_task = await queue.await_(ids[1], timeout=600)

    # Given back without spending an attempt, and run again; the thread's result counted, since nobody else took it.
    assert (coroutine_task.state, coroutine_task.attempts) == ("completed", 1)
    assert coroutine_task.version > max(versions)
    assert (thread_task.state, thread_task.result) == ("completed", {"value": "from the thread"})
    assert thread_task.version in versions


@on_virtual_time
async def test_a_worker_claims_again_as_soon_as_heartbeats_arrive_however_rarely_it_polls(
    timing: VirtualTiming, queue: TaskQueue, cut: Cut, monkeypatch: pytest.MonkeyPatch
):
    # As on PostgreSQL, where the write of a heartbeat wakes nobody.
    monkeypatch.setattr(cut, "subscribe", lambda listener: lambda: None)
    ran: list[float] = []
    queue.register_handler("job", lambda payload: ran.append(timing.monotonic()))
    async with working(queue, poll_interval_seconds=3600) as worker:
        await asyncio.sleep(2 * BEAT + 1)
        cut.is_away = True
        await asyncio.sleep(TIMEOUT)
        cut.is_away = False
        await queue.aenqueue("job")
        back = timing.monotonic()
        worker.notified("new")
        await asyncio.sleep(60)

    assert [moment - back <= 2.1 for moment in ran] == [True]


@on_virtual_time
async def test_tasks_of_a_claim_whose_answer_got_lost_are_found_and_run(
    timing: VirtualTiming, queue: TaskQueue, cut: Cut
):
    runs: list[Any] = []
    queue.register_handler("job", runs.append)
    async with working(queue):
        await asyncio.sleep(1)
        cut.loses_answers_to = {"claim_tasks"}
        ids = [await queue.aenqueue("job", {"n": n}) for n in range(3)]
        tasks = [await queue.await_(task_id, timeout=180) for task_id in ids]

    assert cut.loses_answers_to == set()
    assert sorted(run["n"] for run in runs) == [0, 1, 2]
    assert {(task.state, task.attempts, task.lost_count) for task in tasks} == {("completed", 1, 0)}


@on_virtual_time
async def test_a_worker_stays_declared_dead_when_an_earlier_claim_is_answered_at_last(
    timing: VirtualTiming, queue: TaskQueue, cut: Cut
):
    """What that claim took, others run; and the worker registers anew."""
    runs: list[Any] = []
    queue.register_handler("job", runs.append)
    claimed = asyncio.Event()
    original = cut.arun

    async def answer_late(make: Callable[[], Operation[Any]], *, repeatable: bool = True) -> Any:
        answer = await original(make, repeatable=repeatable)
        if cut.calls[-1] == "claim_tasks" and answer.tasks and not claimed.is_set():
            claimed.set()
            await asyncio.sleep(TIMEOUT)
        return answer

    cut.arun = answer_late  # type: ignore[method-assign]
    async with working(queue):
        task_id = await queue.aenqueue("job")
        await claimed.wait()
        [before] = await queue.aworkers()
        await original(lambda: recover_from(before.instance, queue.config.backoff))
        task = await queue.await_(task_id, timeout=180)
        [after] = await queue.aworkers()

    assert (len(runs), task.state, task.attempts, task.lost_count) == (1, "completed", 2, 1)
    assert after.instance != before.instance


@on_virtual_time
async def test_an_ended_task_is_answered_for_until_its_end_is_recorded(
    timing: VirtualTiming, queue: TaskQueue, cut: Cut
):
    """A worker that dies between the end of the work and its record leaves nothing behind that nobody holds."""
    queue.register_handler("job", lambda payload: None)
    recorded = asyncio.Event()
    original = cut.arun

    async def hold_back(make: Callable[[], Operation[Any]], *, repeatable: bool = True) -> Any:
        if getattr(make, "__qualname__", "").startswith("Finisher"):
            await recorded.wait()
        return await original(make, repeatable=repeatable)

    cut.arun = hold_back  # type: ignore[method-assign]
    async with working(queue, prefetch=0):
        await queue.aenqueue("job")
        await asyncio.sleep(1)
        second = await queue.aenqueue("job")
        await asyncio.sleep(1)
        [worker] = await queue.aworkers()
        assert worker.running == 2
        recorded.set()
        await queue.await_(second, timeout=180)
