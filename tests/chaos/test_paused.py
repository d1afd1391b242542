"""A worker process is stopped for three worker timeouts and wakes up: others have taken over, and it is refused."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

import pytest

from tests.chaos.conftest import StartFleet
from tests.fixtures.waiting import eventually


@dataclass(frozen=True)
class Size:
    rounds: int


SIZES = [
    pytest.param(Size(rounds=1), id="short"),
    pytest.param(Size(rounds=200), id="long", marks=[pytest.mark.chaos, pytest.mark.timeout(7200)]),
]


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
        fleet.close_gate()
        # Half of them coroutines, half threads.
        ids = [queue.enqueue(name) for name in ("gated", "gated_thread", "gated", "gated_thread")]
        eventually(lambda ids=ids: {entry.task_id for entry in fleet.ledger.starts()} >= set(ids))
        held = {entry.task_id for entry in fleet.ledger.started_in(victim)} & set(ids)
        if not held:  # The other one was faster: then it is the victim.
            victim, other = other, victim
            held = set(ids)
        os.kill(victim, signal.SIGSTOP)
        fleet.open_gate()
        for task_id in ids:
            assert queue.wait(task_id, timeout=180).state == "completed"
        # What it held was run elsewhere, and these rows must not change now.
        assert held == {task_id for task_id in ids if fleet.ledger.starts_of(task_id)[-1].pid != victim} & held
        before = [queue.get(task_id) for task_id in ids]

        os.kill(victim, signal.SIGCONT)

        eventually(lambda held=held: held <= fleet.late_writes())
        assert [queue.get(task_id) for task_id in ids] == before

    # The last one hears of it with its next heartbeat, which may be after its late writes.
    eventually(lambda: service.log.count("declared dead") >= size.rounds)
    fleet.stop()
