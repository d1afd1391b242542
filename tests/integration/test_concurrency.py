"""Many real worker processes on one database: every task is completed once, whatever happens to the workers."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tasklib import TaskQueue
from tests.fixtures.counting import Journal, counting_workers
from tests.fixtures.waiting import eventually

WORKERS = 8
SIZES = {"sqlite": 3_000, "postgresql": 20_000}
"""SQLite has one writer, and each of its commits waits for the disk."""


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


def submit(queue: TaskQueue, count: int) -> None:
    queue.task(name="count")(_count).submit_many({"n": n} for n in range(count))


def completed(queue: TaskQueue, count: int) -> bool:
    return queue.count(state="completed") == count


@pytest.mark.backends("sqlite-file", "postgres-newest")
@pytest.mark.timeout(300)
def test_eight_processes_complete_every_task_exactly_once(database_url: str, journal: Journal):
    size = SIZES[database_url.partition(":")[0]]
    with TaskQueue(database_url) as queue, counting_workers(database_url, journal, WORKERS):
        submit(queue, size)
        eventually(lambda: completed(queue, size), timeout=240)

        assert journal.runs() == dict.fromkeys(range(size), 1)
        assert _results(queue) == {n: (1, n) for n in range(size)}
        assert queue.stats().total == size
    assert len(journal.pids()) > 1


@pytest.mark.backends("sqlite-file", "postgres-newest")
@pytest.mark.timeout(300)
def test_a_worker_killed_at_work_loses_nothing(database_url: str, journal: Journal):
    size = 1_200
    options = {"worker_timeout": 2.0, "pause": 0.05}
    with TaskQueue(database_url) as queue, counting_workers(database_url, journal, 4, **options) as workers:
        submit(queue, size)
        victim = workers[0]
        eventually(lambda: journal.pids()[victim.pid] > 5)
        victim.process.send_signal(signal.SIGKILL)
        victim.process.wait()

        eventually(lambda: completed(queue, size), timeout=120)

        runs, results = journal.runs(), _results(queue)
    assert {n: value for n, (_, value) in results.items()} == {n: n for n in range(size)}
    lost = {n for n, (attempts, _) in results.items() if attempts > 1}
    assert lost, "the worker held nothing when it was killed: the test has shown nothing"
    assert all(runs[n] == 1 for n in range(size) if n not in lost)
    assert all(0 < runs[n] <= results[n][0] for n in lost)


@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_workers_told_to_stop_finish_what_they_run_and_leave_the_rest(database_url: str, journal: Journal):
    size = 2_000
    with TaskQueue(database_url) as queue, counting_workers(database_url, journal, 4, pause=0.01) as workers:
        submit(queue, size)
        eventually(lambda: len(journal.pids()) == 4)
        for worker in workers:
            worker.process.terminate()
        assert [worker.process.wait(60) for worker in workers] == [0] * 4

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
