"""A pause reaches what a worker has claimed and not started: it goes back, and no attempt is spent."""

from __future__ import annotations

import threading

import pytest

from tasklib import TaskQueue
from tests.fixtures.waiting import eventually
from tests.programs.processes import working


@pytest.mark.parametrize("paused", ["job", None])
@pytest.mark.backends("sqlite-memory", "postgres-newest")
def test_what_waits_in_hand_goes_back_and_what_runs_finishes(database_url: str, paused: str | None) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def job(payload: object) -> None:
        begun.set()
        assert may_end.wait(180)

    with TaskQueue(database_url) as queue:
        queue.register_handler("job", job)
        first, *others = [queue.enqueue("job") for _ in range(4)]
        with working(queue, concurrency=1, prefetch=8):
            assert begun.wait(180)
            assert queue.count(state="running") == 4
            queue.pause(paused)
            eventually(lambda: queue.count(state="pending") == 3)
            may_end.set()
            assert queue.wait(first, timeout=180).state == "completed"
        assert [(task.state, task.attempts) for task in map(queue.get, others) if task] == [("pending", 0)] * 3
