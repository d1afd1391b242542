"""Functions that keep their worker process from doing anything else for longer than others wait for a heartbeat."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.chaos.conftest import StartFleet
from tests.fixtures.waiting import eventually


@dataclass(frozen=True)
class Size:
    worker_timeout: float
    block_seconds: int


SHORT = Size(worker_timeout=8.0, block_seconds=10)
LONG = Size(worker_timeout=30.0, block_seconds=60)
SIZES = [
    pytest.param(SHORT, id="short"),
    pytest.param(LONG, id="long", marks=[pytest.mark.chaos, pytest.mark.alone, pytest.mark.timeout(300)]),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.backends("postgres-newest")
def test_a_blocked_loop_or_interpreter_loses_no_lease_and_is_not_run_again(
    database_url: str, start_fleet: StartFleet, size: Size
):
    fleet, queue = start_fleet(database_url, worker_timeout_seconds=size.worker_timeout)
    # Three processes: one for each that blocks, and one that would take over.
    service = fleet.start("--concurrency", "1", processes=3)
    workers = set(service.workers())
    ids = [queue.enqueue(name, {"seconds": size.block_seconds}) for name in ("block_loop", "hold_gil")]

    tasks = [queue.wait(task_id, timeout=size.block_seconds + 60) for task_id in ids]

    assert [(task.state, task.attempts, task.lost_count, task.error) for task in tasks] == [
        ("completed", 1, 0, None)
    ] * 2
    assert len(fleet.ledger.starts()) == 2
    assert set(service.workers()) == workers, service.log
    assert "declared dead" not in service.log
    eventually(lambda: len(queue.workers()) == 3)
    fleet.stop()
