"""Child processes that compute past their timeout are ended, all of them, and their places are free again."""

from __future__ import annotations

from dataclasses import dataclass

import psutil
import pytest

from tests.chaos.conftest import StartFleet
from tests.chaos.fleet import Fleet
from tests.fixtures.waiting import eventually


@dataclass(frozen=True)
class Size:
    tasks: int


SIZES = [
    pytest.param(Size(tasks=200), id="long", marks=[pytest.mark.chaos, pytest.mark.timeout(1800)]),
]
CONCURRENCY = 4


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.backends("sqlite-file")
def test_processes_past_their_timeout_are_ended_and_leave_nothing(
    database_url: str, start_fleet: StartFleet, size: Size
):
    fleet, queue = start_fleet(database_url, worker_timeout_seconds=30)
    fleet.start("--concurrency", str(CONCURRENCY))
    for _ in range(size.tasks):
        queue.enqueue("spin", {"seconds": 600}, max_attempts=1, timeout_seconds=0.5)

    eventually(lambda: queue.count(state="failed") == size.tasks, 30 + 20 * size.tasks)

    tasks = queue.list(limit=500)
    assert {task.error.splitlines()[-1].split(":")[0] for task in tasks} == {"tasklib.errors.TaskTimeout"}
    eventually(lambda: not spinning(fleet))
    # All places are free: so many at once, each of which waits for the others to have started.
    ids = [queue.enqueue("nap", {"seconds": 3}) for _ in range(CONCURRENCY)]
    eventually(lambda: {entry.task_id for entry in fleet.ledger.starts()} >= set(ids))
    fleet.stop()


def spinning(fleet: Fleet) -> list[psutil.Process]:
    """The processes that have been given such a task."""
    pids = {entry.pid for entry in fleet.ledger.starts()}
    return [process for process in fleet.processes("child") if process.pid in pids]
