"""An idle worker is woken: by an insert of any program, by a retry, by a resume; never only by its poll."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tasklib import TaskQueue
from tests.fixtures.backends import libpq_url
from tests.fixtures.counting import Journal, counting_workers
from tests.fixtures.waiting import eventually

POLL_SECONDS = 3600.0
"""So rarely does the worker look by itself: whatever it does in a test, it was woken for."""


class Fleet:
    """A worker that hardly ever polls, and a bare connection beside it."""

    def __init__(self, queue: TaskQueue, raw: Any) -> None:
        self.queue = queue
        self.raw = raw

    def wait_until_idle(self) -> None:
        """On SQLite nobody says so: an idle worker watches the file."""
        if not isinstance(self.raw, sqlite3.Connection):
            idle = "SELECT count(*) FROM tasklib_idle WHERE until > now()"
            eventually(lambda: self.raw.execute(idle).fetchone()[0])

    def finished(self) -> Any:
        """The newest task, once it is completed."""
        return eventually(lambda: self.queue.list(limit=1, state="completed"))[0]


@pytest.fixture
def fleet(database_url: str, tmp_path: Path) -> Iterator[Fleet]:
    with (
        TaskQueue(database_url) as queue,
        counting_workers(database_url, Journal(tmp_path / "journal"), 1, poll=POLL_SECONDS),
    ):
        if database_url.startswith("sqlite"):
            raw: Any = sqlite3.connect(database_url.removeprefix("sqlite:///"), isolation_level=None)
        else:
            raw = psycopg.connect(libpq_url(database_url), autocommit=True)
        yield Fleet(queue, raw)
        raw.close()


@pytest.mark.backends("sqlite-file", "postgres")
def test_a_raw_insert_wakes_an_idle_worker_again_and_again(fleet: Fleet):
    for n in range(5):
        fleet.wait_until_idle()
        fleet.raw.execute(f"INSERT INTO tasks (name, kwargs) VALUES ('count', '{{\"n\": {n}}}')")
        eventually(lambda n=n: fleet.queue.count(state="completed") == n + 1)


def retry(queue: TaskQueue) -> None:
    queue.retry(queue.list(state="cancelled")[0].id)


def resume(queue: TaskQueue) -> None:
    queue.resume()


def replace(queue: TaskQueue) -> None:
    queue.enqueue("count", {"n": 1}, unique_key="k", on_conflict="replace")


PREPARE: dict[Callable[[TaskQueue], None], Callable[[TaskQueue], object]] = {
    retry: lambda queue: queue.cancel(queue.enqueue("count", {"n": 0}, delay_seconds=3600)),
    resume: lambda queue: queue.pause() or queue.enqueue("count", {"n": 0}),
    replace: lambda queue: queue.enqueue("count", {"n": 0}, delay_seconds=3600, unique_key="k"),
}
"""Each event, and how to make a task that may not run before it happens."""


@pytest.mark.backends("sqlite-file", "postgres-newest")
@pytest.mark.parametrize("event", PREPARE)
def test_whatever_makes_a_task_due_wakes_an_idle_worker(fleet: Fleet, event: Callable[[TaskQueue], None]):
    PREPARE[event](fleet.queue)
    fleet.wait_until_idle()

    event(fleet.queue)

    assert fleet.finished().attempts == 1


@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_a_delayed_task_starts_when_it_is_due_though_nobody_notifies(fleet: Fleet):
    fleet.wait_until_idle()
    fleet.queue.enqueue("count", {"n": 0}, delay_seconds=1)

    task = fleet.finished()

    assert task.started_at >= task.scheduled_at
