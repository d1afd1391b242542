"""A fleet on the test's database, with short timeouts, and a queue to submit to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tasklib import Config, TaskQueue
from tests.chaos.fleet import Fleet

WORKER_TIMEOUT = 2.0
StartFleet = Callable[..., tuple[Fleet, TaskQueue]]


@pytest.fixture
def start_fleet(tmp_path: Path) -> Iterator[StartFleet]:
    """Makes a fleet and a queue on the same database, both ended with the test."""
    with ExitStack() as stack:

        def make(url: str, **settings: float) -> tuple[Fleet, TaskQueue]:
            # Retries come soon: how long they wait is tested elsewhere.
            chosen = {"worker_timeout_seconds": WORKER_TIMEOUT, "base_retry_delay_seconds": 0.05} | settings
            queue = stack.enter_context(TaskQueue(Config(database_url=url, **chosen)))
            queue.count()
            return stack.enter_context(Fleet(url, tmp_path, **chosen)), queue

        yield make
