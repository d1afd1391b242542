"""Waiting for a task's end: told at once, whoever ends it, and bounded."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tasklib import ConfigurationError, Task, TaskNotFound, TaskQueue, TaskState, WaitTimeout
from tasklib.core.lifecycle import TERMINAL, Phase
from tasklib.queue import wait_for_end
from tests.fixtures.backends import libpq_url
from tests.fixtures.queues import FORMS, Face, Form, open_queue
from tests.fixtures.waiting import PATIENCE

FEW = pytest.mark.backends("sqlite-memory", "postgres-newest")
"""Where more databases would only repeat the same code."""
NEVER_LOOK = 600.0
"""Seconds between looks: whoever returns sooner was told."""


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Form:
    return request.param


@pytest.fixture
def queue(database_url: str) -> Iterator[Face]:
    with open_queue(database_url) as face:
        yield face


class Waiter:
    """Somebody who waits in a thread of their own, blocking or on an event loop."""

    def __init__(self, queue: Face, form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queue = queue
        self.form = form
        self.looked = threading.Semaphore(0)
        self.threads = ThreadPoolExecutor(4)
        monkeypatch.setattr(wait_for_end, "watch_task", self._signalling(wait_for_end.watch_task))
        monkeypatch.setattr(wait_for_end, "get_task", self._signalling(wait_for_end.get_task))

    def start(self, task_id: Any, timeout: float | None = 30.0) -> Future[Task]:
        """Begin to wait; returns once the task was seen unfinished, so that only being told can end it."""
        self.looked = threading.Semaphore(0)
        future = self.threads.submit(self._wait, task_id, timeout)
        assert self.looked.acquire(timeout=180)
        return future

    def _wait(self, task_id: Any, timeout: float | None) -> Task:
        plain = self.queue.plain
        return plain.wait(task_id, timeout) if self.form == "blocking" else asyncio.run(plain.await_(task_id, timeout))

    def _signalling(self, look: Callable[..., Any]) -> Callable[..., Any]:
        def looking(*args: Any) -> Any:
            answer = yield from look(*args)
            self.looked.release()
            return answer

        return looking


@pytest.fixture
def waiter(queue: Face, form: Form, monkeypatch: pytest.MonkeyPatch) -> Iterator[Waiter]:
    monkeypatch.setattr(wait_for_end, "LOOK_SECONDS", NEVER_LOOK)
    waiter = Waiter(queue, form, monkeypatch)
    yield waiter
    waiter.threads.shutdown()


def complete(queue: Face) -> None:
    worker = queue.worker()
    worker.complete(worker.take(), "done")


def give_up(queue: Face) -> None:
    worker = queue.worker()
    worker.give_up(worker.take())


def cancel(queue: Face) -> None:
    queue.cancel(queue.list()[0].id)


def cancel_while_running(queue: Face) -> None:
    worker = queue.worker()
    task = worker.take()
    queue.cancel(task.id)
    worker.cancelled(task)


def bury(queue: Face) -> None:
    queue.worker(timeout_seconds=0.001).take()
    queue.advance(0.01)
    queue.recover()


def expire(queue: Face) -> None:
    queue.advance(7200)
    queue.worker().claim()


ENDINGS = {
    complete: TaskState.COMPLETED,
    give_up: TaskState.FAILED,
    cancel: TaskState.CANCELLED,
    cancel_while_running: TaskState.CANCELLED,
    bury: TaskState.BURIED,
    expire: TaskState.CANCELLED,
}


@FEW
def test_every_ending_is_told_at_once(queue: Face, waiter: Waiter):
    def end(ending: Callable[[Face], None]) -> TaskState:
        waited = waiter.start(queue.enqueue("job", max_retries=0, expires_at=queue.now + timedelta(hours=1)))
        ending(queue)
        return waited.result(PATIENCE).state

    assert {ending: end(ending) for ending in ENDINGS} == ENDINGS


def test_the_answer_is_the_finished_task(queue: Face, waiter: Waiter):
    task_id = queue.enqueue("job")
    waited = waiter.start(task_id)

    complete(queue)

    assert waited.result(PATIENCE) == queue.read(task_id)
    assert waited.result().result == {"value": "done"}


@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_an_end_written_by_another_program_is_told_too(queue: Face, waiter: Waiter):
    task_id = queue.enqueue("job")
    waited = waiter.start(task_id)

    with open_queue(queue.url) as other:
        complete(other)

    assert waited.result(PATIENCE).state == TaskState.COMPLETED


@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_a_queue_that_was_closed_is_told_again(queue: Face, waiter: Waiter):
    first, second = queue.enqueue("job"), queue.enqueue("job")
    with open_queue(queue.url) as other:
        waited = waiter.start(first)
        complete(other)
        waited.result(PATIENCE)
        queue.plain.close()
        waited = waiter.start(second)
        complete(other)

        assert waited.result(PATIENCE).state == TaskState.COMPLETED


@FEW
def test_a_task_that_has_ended_is_given_at_once(queue: Face, waiter: Waiter):
    for phase in sorted(TERMINAL):
        task = queue.task_in(phase)
        assert waiter.start(task.id).result(PATIENCE) == task


@FEW
def test_a_failure_with_a_retry_to_come_is_not_the_end(queue: Face, waiter: Waiter):
    task_id = queue.enqueue("job")
    waited = waiter.start(task_id)
    worker = queue.worker()
    worker.fail(worker.take(), delay=0)
    assert not waited.done()

    complete(queue)

    assert waited.result(PATIENCE).attempts == 2


@FEW
def test_too_long_a_wait_ends_with_the_state_and_the_task_goes_on(queue: Face, waiter: Waiter):
    running = queue.task_in(Phase.RUNNING)

    with pytest.raises(WaitTimeout, match=r"running after 0\.05 s") as caught:
        waiter.start(running.id, timeout=0.05).result(PATIENCE)

    assert isinstance(caught.value, TimeoutError)
    assert (caught.value.task_id, caught.value.state) == (running.id, "running")
    assert queue.read(running.id).state == TaskState.RUNNING


@FEW
def test_no_time_to_wait_is_one_look(queue: Face, waiter: Waiter):
    done, pending = queue.task_in(Phase.COMPLETED), queue.task_in(Phase.PENDING)

    assert waiter.start(done.id, timeout=0).result(PATIENCE).id == done.id
    with pytest.raises(WaitTimeout):
        waiter.start(pending.id, timeout=0).result(PATIENCE)


@pytest.mark.parametrize(
    "timeout", [float("nan"), 10**400, True, "5", timedelta(seconds=5)], ids=lambda given: f"{given!r:.20}"
)
@FEW
def test_what_is_no_time_to_wait_is_refused(queue: Face, form: Form, timeout: Any):
    pending = queue.task_in(Phase.PENDING)

    with open_queue(queue.url, form) as face, pytest.raises(ConfigurationError, match="timeout is a number of seconds"):
        face.wait(pending.id, timeout=timeout)


@FEW
def test_a_task_that_is_not_there_is_not_waited_for(queue: Face, form: Form):
    with open_queue(queue.url, form) as face:
        for unknown in ("01890000-0000-7000-8000-000000000000", "nonsense"):
            with pytest.raises(TaskNotFound, match=unknown):
                face.wait(unknown, timeout=180)


@FEW
def test_a_task_deleted_meanwhile_is_not_found(queue: Face, waiter: Waiter, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wait_for_end, "LOOK_SECONDS", 0.05)
    task_id = queue.enqueue("job")
    waited = waiter.start(task_id)

    queue.sql(f"DELETE FROM tasks WHERE id = '{task_id}'")

    with pytest.raises(TaskNotFound):
        waited.result(20)


@FEW
def test_without_being_told_the_next_look_finds_the_end(queue: Face, waiter: Waiter, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wait_for_end, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(queue.plain.database, "subscribe", lambda listener: lambda: None)
    task_id = queue.enqueue("job")
    waited = waiter.start(task_id)

    complete(queue)

    assert waited.result(PATIENCE).state == TaskState.COMPLETED


@pytest.mark.backends("postgres-newest")
def test_a_broken_listening_connection_is_replaced_and_the_waiter_looks(queue: Face, waiter: Waiter):
    task_id = queue.enqueue("job")
    waited = waiter.start(task_id)
    with psycopg.connect(libpq_url(queue.url), autocommit=True) as connection:
        broken = connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
        ).fetchall()

    complete(queue)

    assert broken == [(True,)]
    assert waited.result(PATIENCE).state == TaskState.COMPLETED


@FEW
def test_many_wait_on_one_event_loop(queue: Face):
    ids = [queue.enqueue("job") for _ in range(20)]
    worker = queue.worker()

    async def wait_for_all() -> list[Task]:
        waits = [asyncio.ensure_future(queue.plain.await_(task_id, 60)) for task_id in ids]
        completed = 0
        while completed < len(ids):  # a claim passes over rows that a waiter is just marking as watched
            for task in await asyncio.to_thread(lambda: worker.claim(20).tasks):
                await asyncio.to_thread(worker.complete, task)
                completed += 1
        return await asyncio.gather(*waits)

    assert [task.id for task in asyncio.run(wait_for_all())] == ids


def test_a_process_with_very_many_open_files_hears_of_an_end(newest_postgres_url: str):
    """Its connection for notices has a number above those that select() takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip(f"only {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1030)]
    try:
        heard = threading.Event()
        with TaskQueue(newest_postgres_url) as queue:
            queue.migrate()
            queue.database.subscribe(lambda event: heard.set() if event == "new" else None)
            queue.pause()
            queue.resume()
            assert heard.wait(PATIENCE)
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
