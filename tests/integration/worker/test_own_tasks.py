"""A task that cancels every asyncio task, or stops the event loop, fails for it; its worker and the others go on."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tasklib import Config, TaskQueue
from tests.fixtures.waiting import eventually


def cancel_everything() -> None:
    for task in asyncio.all_tasks():
        task.cancel()


def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()


CANCELLED = "RuntimeError: a task cannot cancel asyncio tasks of its worker"
STOPPED = "RuntimeError: a task cannot stop the event loop of its worker"
HARM = [pytest.param(cancel_everything, CANCELLED, id="cancel"), pytest.param(stop_the_loop, STOPPED, id="stop")]


def define(queue: TaskQueue, harm: object) -> list[str]:
    """Tasks that do harm, each at another moment and in another place; their names."""
    assert callable(harm)

    @queue.task
    async def at_once() -> None:
        harm()
        await asyncio.sleep(60)

    @queue.task
    async def later() -> None:
        await asyncio.sleep(0.01)
        harm()

    @queue.task(transactional=True)
    async def in_a_transaction() -> None:
        await asyncio.sleep(0)
        harm()

    @queue.task
    async def in_a_task_of_its_own() -> None:
        async def helper() -> None:
            await asyncio.sleep(0)
            harm()

        async with asyncio.TaskGroup() as group:
            group.create_task(helper())

    return ["at_once", "later", "in_a_transaction", "in_a_task_of_its_own"]


@pytest.mark.parametrize("harm, error", HARM)
@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_it_fails_and_the_worker_goes_on(database_url: str, harm: object, error: str) -> None:
    started, let_end, stop = threading.Event(), threading.Event(), threading.Event()
    with TaskQueue(Config(database_url=database_url, max_retries=0)) as queue:
        names = define(queue, harm)

        @queue.task
        async def beside() -> str:
            started.set()
            async with asyncio.timeout(60):  # cancels the task it is in, as it may
                await asyncio.to_thread(let_end.wait, 60)
            return "undisturbed"

        @queue.task
        async def after() -> None:
            await asyncio.sleep(0)

        thread = threading.Thread(target=queue.run, args=[10], kwargs={"stop": stop})
        thread.start()
        try:
            other = beside.submit()
            assert started.wait(180)
            (worker,) = eventually(queue.workers)

            harmful = [queue.wait(queue.enqueue(name, max_attempts=1), timeout=180) for name in names * 2]
            let_end.set()
            undisturbed = [queue.wait(other, timeout=180), *(queue.wait(after.submit(), timeout=60) for _ in range(20))]

            assert [(task.state.value, task.attempts) for task in harmful] == [("failed", 1)] * len(harmful)
            assert all(error in (task.error or "") for task in harmful)
            assert {(task.state.value, task.attempts) for task in undisturbed} == {("completed", 1)}
            assert undisturbed[0].result == {"value": "undisturbed"}
            assert [each.instance for each in queue.workers()] == [worker.instance]
        finally:
            stop.set()
            thread.join(180)
        assert not thread.is_alive()


async def test_inside_another_program_a_task_cannot_cancel_its_worker_but_the_program_can() -> None:
    async with TaskQueue(Config(database_url="sqlite:///:memory:", max_retries=0)) as queue:
        worker: asyncio.Task[None] | None = None
        begun = asyncio.Event()

        @queue.task
        async def end_the_worker() -> None:
            assert worker is not None
            worker.cancel()

        @queue.task
        async def endless() -> None:
            begun.set()
            await asyncio.sleep(3600)

        worker = asyncio.create_task(queue.arun(2, grace_seconds=0))
        ended = await queue.await_(await end_the_worker.asubmit(), timeout=180)
        running = await endless.asubmit()
        await begun.wait()
        assert not worker.done()
        worker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await worker

        assert ended.state.value == "failed"
        assert CANCELLED in (ended.error or "")
        given_back = await queue.aget(running)
        assert given_back is not None
        assert (given_back.state.value, given_back.attempts) == ("pending", 0)


@pytest.mark.backends("postgres-newest")
def test_the_error_of_a_transactional_coroutine_that_has_also_cancelled_itself_is_kept(database_url: str) -> None:
    with TaskQueue(database_url) as queue:

        @queue.task(transactional=True, max_retries=0)
        async def cancelled() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()  # reaches it while its transaction is undone
            raise ValueError("its own")

        task_id = cancelled.submit()
        queue.process_batch()
        task = queue.get(task_id)

    assert task is not None
    assert (task.state.value, (task.error or "").splitlines()[-1]) == ("failed", "ValueError: its own")
