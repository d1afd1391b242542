"""PostgreSQL dies under load and comes back: what was acknowledged is there, and the workers go on by themselves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.chaos.conftest import StartFleet
from tests.chaos.producer import Producer
from tests.fixtures.waiting import eventually
from tools.postgres import available, start
from tools.postgres.server import Server


@dataclass(frozen=True)
class Size:
    between: int
    """Tasks run between two crashes."""
    away: tuple[float, ...]
    """For how many seconds the server stays away after each crash."""


SIZES = [
    pytest.param(Size(between=40, away=(1,)), id="short"),
    pytest.param(
        Size(between=500, away=(0, 0, 0, 1, 0, 5, 0, 12, 0, 40) * 2),
        id="long",
        marks=[pytest.mark.chaos, pytest.mark.timeout(3600)],
    ),
]


@pytest.fixture
def server() -> Iterator[Server]:
    """A server whose commits survive its death."""
    with start(available()[0], durable=True) as running:
        yield running


@pytest.mark.parametrize("size", SIZES)
def test_a_server_that_dies_loses_nothing_acknowledged_and_workers_resume(
    server: Server, start_fleet: StartFleet, size: Size
):
    # Retries are not so soon that an outage uses them up.
    fleet, queue = start_fleet(server.url, base_retry_delay_seconds=1.0)
    service = fleet.start("--concurrency", "8", processes=2)
    workers = service.workers()
    producer = Producer(queue, fleet.history, 1_000_000, backlog=200)

    for number, seconds in enumerate(size.away):
        seen = fleet.ledger.count()
        eventually(lambda seen=seen: fleet.ledger.count() > seen + size.between)
        if number % 2:
            server.crash()
        else:
            server.halt("immediate")
        gone = time.monotonic()
        eventually(lambda: "trying until the database is back" in service.log)
        eventually(lambda gone=gone, seconds=seconds: time.monotonic() > gone + seconds, seconds + 10)
        server.restart()
        back = time.monotonic()
        eventually(lambda back=back: any(entry.moment > back for entry in fleet.ledger.starts()))
    producer.stop()
    eventually(lambda: queue.count(state=["pending", "running", "retrying"]) == 0)

    assert service.workers() == workers, "a worker process did not survive"
    assert set(producer.acknowledged) <= set(fleet.history.completions())
    assert queue.count() == queue.count(state="completed"), queue.stats()
    fleet.stop()
