"""Queues for the seeds' tests: one of our own, and the default one behind the module functions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

import tasklib
from tasklib import Config, ManualClock, TaskQueue
from tests.acceptance.seeds.support import Shell


@pytest.fixture
async def queue(database_url: str) -> AsyncIterator[TaskQueue]:
    """A queue on each database, whose clock is moved by hand."""
    made = TaskQueue(database_url, clock=ManualClock())
    yield made
    await made.aclose()


@pytest.fixture
async def config(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Config]:
    """The configuration of a default queue that no other test has touched; `tasklib.init` is the test's to call."""
    from tasklib import default

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
def shell() -> Iterator[Callable[[TaskQueue], Shell]]:
    """Opens a connection beside the queue's own."""
    opened: list[Shell] = []

    def open_shell(queue: TaskQueue) -> Shell:
        opened.append(Shell(queue))
        return opened[-1]

    yield open_shell
    for each in opened:
        each.close()
