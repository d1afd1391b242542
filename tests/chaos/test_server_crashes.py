"""PostgreSQL dies under load and comes back: what was acknowledged is there, and the workers go on by themselves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tasklib import AsyncTaskContext, TaskQueue
from tasklib.storage.operations.workflows.groups import fold_groups
from tests.chaos.conftest import StartFleet
from tests.chaos.judging import Watch
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


@pytest.fixture
def slow_writer() -> Iterator[Server]:
    """One that writes late what does not wait for the disk."""
    with start(available()[0], durable=True, settings={"wal_writer_delay": "10s"}) as running:
        yield running


@pytest.mark.parametrize("size", SIZES)
def test_a_server_that_dies_loses_nothing_acknowledged_and_workers_resume(
    server: Server, start_fleet: StartFleet, size: Size
):
    # Retries are not so soon that an outage uses them up.
    fleet, queue = start_fleet(server.url, base_retry_delay_seconds=1.0)
    service = fleet.start("--concurrency", "8", processes=2)
    workers = service.workers()
    producer = fleet.produce(queue, 1_000_000, backlog=200)

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


def test_what_a_crash_makes_the_server_forget_of_workflows_is_done_again(slow_writer: Server, watch: Watch) -> None:
    """Deliveries and counts of children do not wait for the disk, because the event and the ends of the children do."""
    with TaskQueue(slow_writer.url) as queue:
        queue.migrate()
        watch(slow_writer.url, None)

        @queue.task
        def child() -> int:
            return 3

        @queue.task
        async def waiting(ctx: AsyncTaskContext) -> int:
            return await ctx.wait("told", int) + await ctx.run(child.bind())

        task_id = waiting.submit()
        queue.process_batch()
        queue.emit("told", 4)
        slow_writer.crash()
        slow_writer.restart()
        queue.process_batch(1)  # to the child
        queue.process_batch(1)  # which ends
        while queue.database.run(fold_groups):
            pass
        slow_writer.crash()
        slow_writer.restart()
        while queue.process_batch():
            pass

        assert task_id.wait() == 7
