"""Queues for the seeds' tests: one of our own, and the default one behind the module functions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

import tasklib
from tasklib import Config, ManualClock, TaskQueue, tq
from tasklib.fluent import Fluent
from tests.acceptance.seeds.examples import at
from tests.acceptance.seeds.support import OpenShell, Shell


@pytest.fixture
async def queue(database_url: str) -> AsyncIterator[TaskQueue]:
    """A queue on each database, whose clock is moved by hand."""
    made = TaskQueue(database_url, clock=ManualClock())
    yield made
    await made.aclose()


@pytest.fixture
async def config(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Config]:
    """The configuration of a default queue that no other test has touched; `tasklib.init` is the test's to call."""
    from tasklib.queue import default

    monkeypatch.setattr(default, "_default", default._Default())
    yield Config(database_url=database_url, retry_jitter=0.0)
    if default._default.queue is not None:
        await default._default.queue.aclose()


@pytest.fixture
def clock(config: Config) -> ManualClock:
    """Sets up the default queue with a clock moved by hand."""
    tasklib.init(config)
    moved_by_hand = ManualClock()
    tasklib.default_queue().clock = moved_by_hand
    return moved_by_hand


@pytest.fixture
def shell() -> Iterator[OpenShell]:
    """Opens a connection beside the queue's own."""
    opened: list[Shell] = []

    def open_shell(queue: TaskQueue) -> Shell:
        opened.append(Shell(queue))
        return opened[-1]

    yield open_shell
    for each in opened:
        each.close()


@pytest.fixture
def five_o_clock(config: Config) -> ManualClock:
    """The default queue at the moment the seed's example tasks are submitted."""
    tasklib.init(config)
    clock = ManualClock(at("17:00:00"))
    tasklib.default_queue().clock = clock
    return clock


@pytest.fixture
async def fluent(database_url: str) -> AsyncIterator[Fluent]:
    """`tq`, set up on each database and stopped after."""
    tq.init(database_url)
    yield tq
    await tq.stop()


@pytest.fixture
async def http(queue: TaskQueue) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service over the queue, which checks nobody."""
    transport = httpx.ASGITransport(queue.asgi(auth=None))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client
