"""Seed 002, sections 5.2, 7, 8 and 10: an application from start to stop, in Python's spelling."""

from __future__ import annotations

import asyncio
import inspect
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from tasklib import (
    Backoff,
    Config,
    NotInitialized,
    SchemaMissing,
    Task,
    TaskQueue,
    tq,
)
from tasklib.fluent import Fluent
from tests.acceptance.seeds.support import advance, fail, read, url_of
from tests.fixtures.waiting import PATIENCE, aeventually, eventually


def wait_for(queue: TaskQueue, number: int) -> list[Task]:
    """The completed tasks, once there are so many."""
    return eventually(lambda: found if len(found := queue.list(state="completed")) == number else None) or []


@dataclass
class CrawlPayload:
    """The payload of the TypeScript example."""

    url: str
    depth: int | None = None


async def test_block_37_from_start_to_stop(database_url: str) -> None:
    """5.2 Programmatic API: initialize, set up two types, add tasks with and without options, control, stop."""
    tq.init(database_url, poll_interval=1.0, batch_size=10)
    done: list[str] = []

    async def send_email(payload: dict[str, str]) -> None:
        done.append(payload["to"])

    async def process_image(payload: dict[str, str]) -> None:
        done.append(payload["imageUrl"])

    try:
        tq("send_email").set_worker(send_email).set_worker_count(2).set_rate_limit(10).set_timeout(30)
        tq("process_image").set_worker(process_image).set_worker_count(4).set_rate_limit(20).set_timeout(300)
        tq("send_email").add({"to": "user@example.com", "subject": "Welcome", "body": "Hello!"})
        tq("process_image").add({"imageUrl": "/uploads/photo.jpg"})
        tq("send_email").add(
            {"to": "vip@example.com", "subject": "Important"},
            max_attempts=10,
            run_after=datetime(2099, 12, 31, tzinfo=UTC),
        )
        await aeventually(lambda: tq.stats().completed == 2)

        tq.pause()
        tq.resume()
        (waiting,) = tq.queue.list(state="delayed")
        assert (waiting.max_attempts, waiting.payload["to"]) == (10, "vip@example.com")
        assert sorted(done) == ["/uploads/photo.jpg", "user@example.com"]
    finally:
        await tq.stop()


def test_block_44_the_options_of_init(database_url: str) -> None:
    """7.3 Global tq() Function: poll interval, batch size and task timeout, with the defaults printed there."""
    parameters = inspect.signature(tq.init).parameters

    defaults = {name: parameters[name].default for name in ("poll_interval", "batch_size", "task_timeout")}
    assert defaults == {"poll_interval": 1.0, "batch_size": 10, "task_timeout": 300}
    with pytest.raises(NotInitialized, match=r"tq\.init"):
        Fluent()("crawl")


def test_block_45_usage_example(fluent: Fluent) -> None:
    """7.3 Global tq() Function, usage example: set up and use, both chained."""
    tq("crawl", payload=CrawlPayload).set_worker(lambda payload: payload.url).set_worker_count(3).set_rate_limit(10)
    tq("crawl").add({"url": "https://example.com/1"}).add({"url": "https://example.com/2"})
    tq.pause()
    tq.resume()

    results = {task.result["value"] for task in wait_for(fluent.queue, 2) if task.result}
    assert results == {"https://example.com/1", "https://example.com/2"}


def test_block_46_task_manager(queue: TaskQueue) -> None:
    """7.3 TaskManager: create, get, list and delete are the queue's; the rest is a worker's and is not public."""
    queue.register_handler("send_email", lambda payload: None)

    task_id = queue.enqueue("send_email", {"to": "a@example.com"}, max_attempts=3)
    assert read(queue, task_id).id == task_id
    assert queue.get(uuid4()) is None
    assert [task.id for task in queue.list(name="send_email")] == [task_id]
    queue.process_batch()
    assert queue.delete(task_id) is True
    assert queue.get(task_id) is None


def test_block_47_scheduler(queue: TaskQueue) -> None:
    """7.3 Scheduler: the next retry, whether a task should run now, and what is ready."""
    assert Backoff(base=10, jitter=0)(2) == 40
    now, later = queue.enqueue("test"), queue.enqueue("test", delay_seconds=60)

    moment = queue.clock.now()
    assert moment is not None
    due = {task.id: task.due_at for task in queue.list()}
    assert due[now] is not None
    assert due[now] <= moment
    assert due[later] == moment + timedelta(seconds=60)
    assert [task.id for task in queue.list(state="delayed")] == [later]


def test_block_48_executor(queue: TaskQueue) -> None:
    """7.3 Executor: handlers come and go; a task of a type without one waits."""
    queue.register_handler("test", lambda payload: None)
    queue.enqueue("test")
    queue.unregister_handler("test")

    assert queue.process_batch() == 0
    queue.register_handler("test", lambda payload: None)
    assert queue.process_batch() == 1


async def test_block_49_worker(queue: TaskQueue) -> None:
    """7.3 Worker: start, be seen running, and stop after the current work."""
    started, proceed = threading.Event(), threading.Event()

    def slow(payload: Any) -> str:
        started.set()
        proceed.wait(PATIENCE)
        return "finished"

    queue.register_handler("test", slow)
    task_id = await queue.aenqueue("test")

    worker = asyncio.ensure_future(queue.arun(signals=False))
    assert await asyncio.to_thread(started.wait, 20)
    assert [each.alive for each in await queue.aworkers()] == [True]
    worker.cancel()
    proceed.set()
    await asyncio.gather(worker, return_exceptions=True)

    assert read(queue, task_id).result == {"value": "finished"}
    assert await queue.aworkers() == []


@pytest.mark.new_schema
def test_block_50_database_setup(database_url: str) -> None:
    """8.1 Database Setup: `migrate` creates the tables and indexes, and does nothing the second time."""
    with TaskQueue(Config(database_url, auto_migrate=False)) as queue:
        with pytest.raises(SchemaMissing, match="tasklib migrate"):
            queue.stats()
        applied = queue.migrate()
        assert [name[:4] for name in applied] == sorted({name[:4] for name in applied})
        assert applied[0] == "0001_initial"
        assert queue.migrate() == []
        assert queue.stats().total == 0


async def test_block_51_initialize_queue(queue: TaskQueue) -> None:
    """8.2 Initialize Queue: poll interval, batch size and the time after which a task is stale."""
    config = Config(url_of(queue), poll_interval_seconds=2.0, lock_timeout_seconds=300)
    async with TaskQueue(config) as other:
        other.register_handler("test", lambda payload: "done")
        worker = asyncio.ensure_future(other.arun(prefetch=5, signals=False))

        task_id = await other.aenqueue("test")
        finished = await other.await_(task_id, timeout=180)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)

    assert finished.result == {"value": "done"}


async def test_block_52_register_handlers(queue: TaskQueue) -> None:
    """8.3 Register Handlers: one returns an object, one what another function gave, one nothing."""
    indexed: list[str] = []

    async def send_email(payload: dict[str, str]) -> dict[str, str]:
        return {"messageId": f"{payload['to']}/{payload['subject']}"}

    async def process_image(payload: dict[str, str]) -> list[int]:
        return [len(payload["imageUrl"])]

    async def search_index(payload: dict[str, str]) -> None:
        indexed.append(payload["itemId"])

    for handler in (send_email, process_image, search_index):
        queue.register_handler(handler.__name__, handler)
    ids = [
        await queue.aenqueue("send_email", {"to": "a", "subject": "b", "body": "c"}),
        await queue.aenqueue("process_image", {"imageUrl": "/x.png"}),
        await queue.aenqueue("search_index", {"itemId": "i1"}),
    ]
    await queue.aprocess_batch()

    results = [read(queue, task_id).result for task_id in ids]
    assert results == [{"value": {"messageId": "a/b"}}, {"value": [6]}, {"value": None}]
    assert indexed == ["i1"]


def test_block_53_enqueue_tasks(queue: TaskQueue) -> None:
    """8.4 Enqueue Tasks: with a priority and a number of attempts; the API route comes with HTTP."""
    task_id = queue.enqueue(
        "send_email",
        {"to": "user@example.com", "subject": "Welcome", "body": "Hello!"},
        priority=3,
        max_attempts=5,
    )

    assert (read(queue, task_id).priority, read(queue, task_id).max_attempts) == (3, 5)


def test_block_55_retry_with_exponential_backoff(queue: TaskQueue) -> None:
    """10.1 Unit Tests, the example test: two failures, then success; the clock is moved past each backoff."""
    attempts = 0

    def handler(payload: Any) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise RuntimeError("Fail")

    queue.register_handler("test", handler)
    task_id = queue.enqueue("test", {}, max_attempts=3)

    queue.process_batch()  # attempt 1: fail
    assert read(queue, task_id).state == "failed"

    advance(queue, 6)
    queue.process_batch()  # attempt 2: fail
    assert read(queue, task_id).attempts == 2

    advance(queue, 12)
    queue.process_batch()  # attempt 3: success
    assert read(queue, task_id).state == "completed"
    assert attempts == 3


async def test_block_55_without_waiting_nothing_is_retried(queue: TaskQueue) -> None:
    """10.1 Unit Tests: a retry is due only after its delay, however often a batch is processed."""
    queue.register_handler("test", fail)
    task_id = await queue.aenqueue("test")

    await queue.aprocess_batch()
    await queue.aprocess_batch()

    assert (await aeventually(lambda: queue.get(task_id))).attempts == 1
