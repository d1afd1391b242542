"""The database's clock steps forward past the worker timeout and past every lease: nobody who lives loses a task."""

from __future__ import annotations

import threading
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, urlsplit

import psycopg
import pytest

from tasklib import Config, TaskQueue
from tests.chaos.conftest import WORKER_TIMEOUT, StartFleet
from tests.chaos.test_outages import passes, read, working
from tests.fixtures.backends import libpq_url
from tests.fixtures.waiting import aeventually, eventually

WORKERS = 2


class SteppingClock:
    """The machine's clock, until somebody sets it."""

    def __init__(self) -> None:
        self.off = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.off


@dataclass(frozen=True)
class Size:
    timeout: float
    steps: tuple[float, ...]


SIZES = [
    pytest.param(
        Size(timeout=6.0, steps=(60.0, 7.0, -3600.0, 3600.0, 6.5, 86_400.0)),
        id="long",
        marks=[pytest.mark.chaos, pytest.mark.alone, pytest.mark.timeout(900)],
    ),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.backends("sqlite-file", "postgres-newest")
async def test_living_workers_lose_nothing_when_the_clock_steps(database_url: str, size: Size):
    clock, release = SteppingClock(), threading.Event()
    config = Config(database_url=database_url, worker_timeout_seconds=size.timeout, lock_timeout_seconds=3.0)
    async with AsyncExitStack() as stack:
        watching = TaskQueue(config, clock=clock)
        stack.push_async_callback(watching.aclose)
        ids = [watching.enqueue("job") for _ in range(WORKERS)]
        for _ in range(WORKERS):
            queue = TaskQueue(config, clock=clock)
            queue.register_handler("job", lambda payload: release.wait(600))
            await stack.enter_async_context(working(queue))
        await aeventually(lambda: all(task.state == "running" for task in read(watching, ids)))
        for step in size.steps:
            await passes(1.3 * size.timeout)  # by now each of them may judge the others
            clock.off += timedelta(seconds=step)
            await passes(1.3 * size.timeout)
            assert {(task.state, task.lost_count) for task in read(watching, ids)} == {("running", 0)}
        release.set()
        await aeventually(lambda: all(task.completed_at for task in read(watching, ids)))
        assert {(task.state, task.attempts) for task in read(watching, ids)} == {("completed", 1)}


@pytest.mark.chaos
@pytest.mark.alone
@pytest.mark.timeout(900)
async def test_a_fleet_loses_nothing_when_the_clock_of_its_server_steps(
    newest_postgres_url: str, start_fleet: StartFleet
):
    """Real worker processes, on a server whose `now()` is another for them: it is found before PostgreSQL's own."""
    schema = dict(parse_qsl(urlsplit(newest_postgres_url).query))["schema"] + "_clock"
    with psycopg.connect(libpq_url(newest_postgres_url), autocommit=True) as server:
        server.execute(f"CREATE SCHEMA {schema}".encode())
        server.execute(f"CREATE TABLE {schema}.steps (seconds float8)".encode())
        server.execute(
            f"CREATE FUNCTION {schema}.now() RETURNS timestamptz STABLE LANGUAGE sql AS $$ SELECT pg_catalog.now() + "
            f"make_interval(secs => coalesce(sum(seconds), 0)) FROM {schema}.steps $$".encode()
        )
        fleet, queue = start_fleet(f"{newest_postgres_url}&options=-csearch_path%3D{schema},pg_catalog")
        fleet.start("--concurrency", "1", processes=WORKERS)
        for step in (60.0, 2.5, 3600.0):
            ids = [queue.enqueue("work", {"seconds": 4 * WORKER_TIMEOUT}) for _ in range(WORKERS)]
            eventually(lambda ids=ids: {entry.task_id for entry in fleet.ledger.starts()} >= set(ids))
            await passes(1.3 * WORKER_TIMEOUT)
            server.execute(f"INSERT INTO {schema}.steps VALUES (%s)".encode(), [step])
            eventually(lambda ids=ids: all(task.completed_at for task in read(queue, ids)))
            assert {(task.state, task.attempts, task.lost_count) for task in read(queue, ids)} == {("completed", 1, 0)}
        fleet.stop()
