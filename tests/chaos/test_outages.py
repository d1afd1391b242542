"""The database is away for a little longer than the worker timeout: everybody lives, so nobody loses a task."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import httpx
import pytest

from tasklib import Config, Task, TaskQueue
from tests.chaos.proxy import Proxy
from tests.chaos.test_half_open import through
from tests.fixtures.waiting import aeventually

WORKERS = 6


@dataclass(frozen=True)
class Size:
    timeout: float
    rounds: int


SIZES = [
    pytest.param(
        Size(timeout=9.0, rounds=5), id="long", marks=[pytest.mark.chaos, pytest.mark.alone, pytest.mark.timeout(900)]
    ),
]


@asynccontextmanager
async def working(queue: TaskQueue, concurrency: int = 1) -> AsyncIterator[None]:
    """A worker in the background, stopped in order."""
    running = asyncio.ensure_future(queue.arun(concurrency, signals=False, poll_interval_seconds=0.1, grace_seconds=1))
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running], timeout=180)
        await queue.aclose()


async def passes(seconds: float) -> None:
    """Return when so much time has passed."""
    until = time.monotonic() + seconds
    await aeventually(lambda: time.monotonic() > until, seconds + 10)


async def away(proxy: Proxy, timeout: float) -> None:
    """An outage that is slightly longer than the worker timeout."""
    proxy.cut()
    await passes(1.06 * timeout)
    proxy.heal()


@pytest.mark.parametrize("size", SIZES)
async def test_living_workers_lose_nothing_in_an_outage_just_above_their_timeout(newest_postgres_url: str, size: Size):
    with Proxy(urlsplit(newest_postgres_url).port or 0) as proxy:
        config = Config(database_url=through(proxy, newest_postgres_url), worker_timeout_seconds=size.timeout)
        release = threading.Event()
        async with AsyncExitStack() as stack:
            watching = TaskQueue(newest_postgres_url)
            stack.push_async_callback(watching.aclose)
            for _ in range(WORKERS):
                queue = TaskQueue(config)
                queue.register_handler("job", lambda payload: release.wait(600))
                await stack.enter_async_context(working(queue))
            await aeventually(lambda: len(watching.workers()) == WORKERS)
            for _ in range(size.rounds):
                release.clear()
                ids = [watching.enqueue("job") for _ in range(WORKERS)]
                await aeventually(lambda ids=ids: all(task.state == "running" for task in read(watching, ids)))
                await passes(1.1 * size.timeout)  # by now each of them may judge the others
                await away(proxy, size.timeout)
                # Whoever is wrongly declared dead has been by then.
                await passes(1.5 * size.timeout)
                release.set()
                await aeventually(lambda ids=ids: all(task.completed_at for task in read(watching, ids)))

                tasks = read(watching, ids)
                assert {(task.state, task.attempts, task.lost_count) for task in tasks} == {("completed", 1, 0)}


@pytest.mark.parametrize("size", SIZES)
async def test_the_http_service_takes_nothing_from_a_living_worker_after_an_outage(
    newest_postgres_url: str, size: Size
):
    with Proxy(urlsplit(newest_postgres_url).port or 0) as proxy:
        queue = TaskQueue(Config(through(proxy, newest_postgres_url), worker_timeout_seconds=size.timeout))
        async with service(queue) as http, service(queue) as replica:
            ids = [queue.enqueue("job") for _ in range(3)]
            living = await register(http)
            assert len(await claim(http, living)) == 3
            for _ in range(size.rounds):
                beats = asyncio.ensure_future(beat(http, living, size.timeout / 4))
                await passes(size.timeout / 2)
                beats.cancel()
                await away(proxy, size.timeout)
                # Others come first after the outage, a little before the next heartbeat is due.
                assert await claim(http, await register(http)) == []
                assert await claim(replica, await register(replica)) == []
                beats = asyncio.ensure_future(beat(http, living, size.timeout / 4))
                await passes(1.1 * size.timeout)
                assert await claim(replica, await register(replica)) == []
                assert {(task.state, task.lost_count) for task in read(queue, ids)} == {("running", 0)}
                beats.cancel()
            # Once it is silent for good, its tasks are the other's.
            other, taken = await register(http), list[dict[str, Any]]()
            beats = asyncio.ensure_future(beat(http, other, size.timeout / 4))
            await aeventually(lambda: more(http, other, taken), 180)
            assert {task["id"] for task in taken} == {str(task_id) for task_id in ids}
            assert {task.lost_count for task in read(queue, ids)} == {1}
            beats.cancel()
        await queue.aclose()


def service(queue: TaskQueue) -> httpx.AsyncClient:
    """A client of a service of its own."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(queue.asgi(auth=None)), base_url="http://localhost")


def read(queue: TaskQueue, ids: list[UUID]) -> list[Task]:
    return [task for task_id in ids if (task := queue.get(task_id)) is not None]


async def register(http: httpx.AsyncClient) -> str:
    answer = await aeventually(lambda: reached(http, "/api/workers", {"workerId": "w", "types": ["job"]}))
    instance: str = answer.json()["instance"]
    return instance


async def claim(http: httpx.AsyncClient, instance: str) -> list[dict[str, Any]]:
    """What a claim gives, as soon as the service reaches its database."""
    answer = await aeventually(lambda: reached(http, f"/api/workers/{instance}/claim", {"limit": 10}))
    tasks: list[dict[str, Any]] = answer.json()["tasks"]
    return tasks


async def more(http: httpx.AsyncClient, instance: str, taken: list[dict[str, Any]]) -> bool:
    taken += await claim(http, instance)
    return len(taken) == 3


async def beat(http: httpx.AsyncClient, instance: str, every: float) -> None:
    """Beat until cancelled, as a worker in any language does."""
    while True:
        await http.post(f"/api/workers/{instance}/heartbeat")
        await asyncio.sleep(every)


async def reached(http: httpx.AsyncClient, path: str, body: dict[str, Any]) -> httpx.Response | None:
    answer = await http.post(path, json=body)
    return None if answer.status_code == 503 else answer
