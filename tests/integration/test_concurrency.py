"""Real worker processes on one database complete every task once; tests/chaos kills them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasklib import TaskQueue
from tests.fixtures.counting import Journal, counting_workers
from tests.fixtures.waiting import eventually

WORKERS = 4
SIZE = 1_000


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


def submit(queue: TaskQueue, count: int) -> None:
    queue.task(name="count")(_count).submit_many({"n": n} for n in range(count))


def completed(queue: TaskQueue, count: int) -> bool:
    return queue.count(state="completed") == count


@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_several_processes_complete_every_task_exactly_once(database_url: str, journal: Journal):
    size = SIZE
    with TaskQueue(database_url) as queue, counting_workers(database_url, journal, WORKERS):
        submit(queue, size)
        eventually(lambda: completed(queue, size))

        assert journal.runs() == dict.fromkeys(range(size), 1)
        assert _results(queue) == {n: (1, n) for n in range(size)}
        assert queue.stats().total == size


@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_workers_told_to_stop_finish_what_they_run_and_leave_the_rest(database_url: str, journal: Journal):
    size = 1_000
    with TaskQueue(database_url) as queue, counting_workers(database_url, journal, 2, pause=0.02) as workers:
        submit(queue, size)
        eventually(lambda: len(journal.pids()) == 2)
        for worker in workers:
            worker.process.terminate()
        assert [worker.process.wait(180) for worker in workers] == [0] * 2

        stats, runs = queue.stats(), journal.runs()
        assert (stats.running, stats.failed, stats.buried) == (0, 0, 0)
        assert stats.completed + stats.pending == size
        assert runs.total() == len(runs) == stats.completed
        assert queue.workers() == []


def _count(n: int) -> int:
    return n


def _results(queue: TaskQueue) -> dict[int, tuple[int, object]]:
    """Payload → (attempts, result) of every task."""
    found: dict[int, tuple[int, object]] = {}
    page = queue.list(limit=5_000)
    while page:
        for task in page:
            found[task.payload["n"]] = (task.attempts, task.result and task.result["value"])
        page = queue.list(limit=5_000, before=page[-1])
    return found
