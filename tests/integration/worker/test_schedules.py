"""A running worker takes the ticks of schedules: of those its code declares, and of those made while it runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tasklib import TaskQueue
from tests.fixtures.waiting import eventually
from tests.programs.processes import working

pytestmark = pytest.mark.backends("sqlite-file", "sqlite-memory", "postgres-newest")


@pytest.fixture
def queue(database_url: str) -> Iterator[TaskQueue]:
    with TaskQueue(database_url) as queue:
        yield queue


def test_a_schedule_declared_in_code_runs(queue: TaskQueue) -> None:
    ran: list[int] = []

    @queue.schedule(every=0.1)
    @queue.task
    def tick() -> None:
        ran.append(1)

    with working(queue):
        eventually(lambda: len(ran) >= 3)


def test_a_schedule_made_while_the_worker_runs_is_taken_at_once(queue: TaskQueue) -> None:
    ran: list[str] = []

    @queue.task
    def greet(name: str) -> None:
        ran.append(name)

    with working(queue):
        queue.enqueue("greet", {"name": "first"})
        eventually(lambda: "first" in ran)
        queue.add_schedule("often", task="greet", every=0.1, kwargs={"name": "often"})
        eventually(lambda: "often" in ran)


def test_a_paused_schedule_makes_no_task_until_it_is_resumed(queue: TaskQueue) -> None:
    @queue.task
    def tick() -> None: ...

    queue.add_schedule("paused", task="tick", every=0.1)
    queue.pause_schedule("paused")
    queue.add_schedule("other", task="tick", every=0.1)
    with working(queue):
        eventually(lambda: queue.count(name="tick") >= 5)
        assert {task.headers["schedule"] for task in queue.list(name="tick")} == {"other"}
        queue.resume_schedule("paused")
        eventually(lambda: "paused" in {task.headers["schedule"] for task in queue.list(name="tick")})
