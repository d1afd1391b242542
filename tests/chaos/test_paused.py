"""A worker process is stopped for three worker timeouts and wakes up: others have taken over, and it is refused."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

import pytest

from tests.chaos.conftest import WORKER_TIMEOUT, StartFleet
from tests.fixtures.waiting import eventually


@dataclass(frozen=True)
class Size:
    rounds: int


SIZES = [
    pytest.param(Size(rounds=1), id="short"),
    pytest.param(Size(rounds=50), id="long", marks=[pytest.mark.chaos, pytest.mark.timeout(1800)]),
]
SECONDS = 2.0


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.backends("postgres-newest")
def test_late_writes_of_a_worker_that_was_stopped_are_refused_and_change_nothing(
    database_url: str, start_fleet: StartFleet, size: Size
):
    fleet, queue = start_fleet(database_url)
    service = fleet.start("--concurrency", "4", processes=2)

    for _ in range(size.rounds):
        fleet.wait_working(service, 2)
        victim, other = service.workers()
        # Half of them coroutines, half threads.
        ids = [queue.enqueue(name, {"seconds": SECONDS}) for name in ("nap", "work", "nap", "work")]
        eventually(lambda ids=ids: {entry.task_id for entry in fleet.ledger.starts()} >= set(ids))
        held = {entry.task_id for entry in fleet.ledger.started_in(victim)} & set(ids)
        if not held:  # The other one was faster: then it is the victim.
            victim, other = other, victim
            held = set(ids)
        os.kill(victim, signal.SIGSTOP)
        stopped = time.monotonic()
        for task_id in ids:
            assert queue.wait(task_id, timeout=60).state == "completed"
        eventually(lambda stopped=stopped: time.monotonic() > stopped + 3 * WORKER_TIMEOUT)
        # What had completed before the stop counts; the rest was run elsewhere, and its rows must not change now.
        rerun = {task_id for task_id in held if fleet.ledger.starts_of(task_id)[-1].pid != victim}
        before = [queue.get(task_id) for task_id in ids]

        os.kill(victim, signal.SIGCONT)

        eventually(lambda rerun=rerun: rerun <= fleet.late_writes())
        assert [queue.get(task_id) for task_id in ids] == before
        assert rerun

    assert fleet.ledger.executed_twice() == []
    # The last one hears of it with its next heartbeat, which may be after its late writes.
    eventually(lambda: service.log.count("declared dead") >= size.rounds)
    fleet.stop()
