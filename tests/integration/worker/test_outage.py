"""A worker while its database is away: it waits, gives up what others may take over, and stops in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tasklib import Config, TaskQueue
from tasklib.errors import DatabaseUnavailable
from tasklib.storage.statement import Operation
from tasklib.worker import Worker, WorkerSettings
from tests.fixtures.waiting import aeventually


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


@pytest.fixture
def queue(newest_postgres_url: str) -> Iterator[TaskQueue]:
    config = Config(database_url=newest_postgres_url, worker_timeout_seconds=1.0, base_retry_delay_seconds=0.05)
    with TaskQueue(config) as made:
        yield made


@pytest.fixture
def cut(queue: TaskQueue) -> Cut:
    queue.count()
    queue._database = Cut(queue.database)  # type: ignore[assignment]
    return queue._database  # type: ignore[return-value]


@asynccontextmanager
async def working(queue: TaskQueue, **settings: Any) -> AsyncIterator[Worker]:
    chosen = {"concurrency": 4, "signals": False, "poll_interval_seconds": 0.1} | settings
    worker = Worker(queue, WorkerSettings(**chosen))
    running = asyncio.ensure_future(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(running, 60)
        await queue.aclose()


async def test_a_worker_that_starts_while_the_database_is_away_begins_when_it_is_back(
    queue: TaskQueue, cut: Cut, caplog: pytest.LogCaptureFixture
):
    ran = asyncio.Event()
    queue.register_handler("job", lambda payload: ran.set())
    await queue.aenqueue("job")
    cut.is_away = True

    async with working(queue):
        await aeventually(lambda: "trying until the database is back" in caplog.text)
        cut.is_away = False
        await aeventually(lambda: ran.is_set())


async def test_a_worker_told_to_stop_while_the_database_is_away_stops_in_time(
    queue: TaskQueue, cut: Cut, caplog: pytest.LogCaptureFixture
):
    started = asyncio.Event()

    async def job(payload: Any) -> None:
        started.set()
        await asyncio.sleep(60)

    queue.register_handler("job", job)
    task_id = await queue.aenqueue("job")
    async with working(queue, grace_seconds=0.1):
        await aeventually(lambda: started.is_set())
        cut.is_away = True

    assert "stopping without the database" in caplog.text
    assert "other workers recover its tasks: it has not answered for 5 s" in caplog.text
    cut.is_away = False
    # Nobody has signed off, so others find out.
    assert [worker.alive for worker in await queue.aworkers()] == [False]
    assert (await queue.aget(task_id)).state == "running"  # type: ignore[union-attr]


async def test_coroutines_are_given_up_before_others_take_over_and_threads_are_left_to_finish(
    queue: TaskQueue, cut: Cut
):
    ended: set[str] = set()
    release = asyncio.Event()
    thread_may_end = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def coroutine(payload: Any) -> None:
        try:
            await release.wait()
        finally:
            ended.add("coroutine")

    def thread(payload: Any) -> str:
        asyncio.run_coroutine_threadsafe(thread_may_end.wait(), loop).result()
        return "from the thread"

    queue.register_handler("coroutine", coroutine)
    queue.register_handler("thread", thread)
    async with working(queue):
        ids = [await queue.aenqueue("coroutine"), await queue.aenqueue("thread")]
        await aeventually(lambda: _all_running(queue, ids))
        versions = [task.version for task in await queue.alist()]
        cut.is_away = True
        await aeventually(lambda: "coroutine" in ended)
        release.set()
        thread_may_end.set()
        cut.is_away = False

        coroutine_task = await queue.await_(ids[0], timeout=60)
        thread_task = await queue.await_(ids[1], timeout=60)

    # Given back without spending an attempt, and run again; the thread's result counted, since nobody else took it.
    assert (coroutine_task.state, coroutine_task.attempts) == ("completed", 1)
    assert coroutine_task.version > max(versions)
    assert (thread_task.state, thread_task.result) == ("completed", {"value": "from the thread"})
    assert thread_task.version in versions


async def test_tasks_of_a_claim_whose_answer_got_lost_are_found_and_run(queue: TaskQueue, cut: Cut):
    runs: list[Any] = []
    queue.register_handler("job", runs.append)
    async with working(queue):
        await aeventually(lambda: "claim_tasks" in cut.calls)
        cut.loses_answers_to = {"claim_tasks"}
        ids = [await queue.aenqueue("job", {"n": n}) for n in range(3)]
        tasks = [await queue.await_(task_id, timeout=60) for task_id in ids]

    assert sorted(run["n"] for run in runs) == [0, 1, 2]
    assert {(task.state, task.attempts, task.lost_count) for task in tasks} == {("completed", 1, 0)}


async def test_an_ended_task_is_answered_for_until_its_end_is_recorded(queue: TaskQueue, cut: Cut):
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
        first = await queue.aenqueue("job")
        await aeventually(lambda: _all_running(queue, [first]))
        second = await queue.aenqueue("job")
        await aeventually(lambda: _all_running(queue, [second]))
        [worker] = await queue.aworkers()
        assert worker.running == 2
        recorded.set()
        await queue.await_(second, timeout=60)


async def _all_running(queue: TaskQueue, ids: list[Any]) -> bool:
    return all([(await queue.aget(task_id)).state == "running" for task_id in ids])  # type: ignore[union-attr]
