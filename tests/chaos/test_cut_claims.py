"""A claim is cut off in flight, and the server goes on with it: whatever it takes is not left to nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import psycopg
import pytest

from tasklib import Config, TaskQueue, current_context
from tests.chaos.ledger import note
from tests.chaos.proxy import Proxy
from tests.chaos.test_half_open import through
from tests.chaos.test_outages import claim, read, register, service, working
from tests.fixtures.backends import libpq_url
from tests.fixtures.waiting import aeventually

TASKS = 4
TAKES = b"FOR NO KEY UPDATE SKIP LOCKED"
"""Found in the statements that claim, and in no others."""


@dataclass(frozen=True)
class Size:
    rounds: int


SIZES = [
    pytest.param(Size(rounds=1), id="short"),
    pytest.param(Size(rounds=25), id="long", marks=[pytest.mark.chaos, pytest.mark.timeout(900)]),
]


class Holder:
    """Another session, which keeps the worker's claims waiting in the server."""

    def __init__(self, url: str) -> None:
        self._schema = dict(parse_qsl(urlsplit(url).query))["schema"]
        self._holding = psycopg.connect(libpq_url(url))
        self._looking = psycopg.connect(libpq_url(url), autocommit=True)

    @contextmanager
    def holds(self, statement: str) -> Iterator[None]:
        self._holding.execute(statement.encode())
        yield
        self._holding.commit()

    def now(self) -> datetime:
        moment: datetime = self._ask("SELECT clock_timestamp()")
        return moment

    def waiting(self, since: datetime | None = None) -> int:
        """How many sessions wait for it, or for one that does, with statements sent since then."""
        count: int = self._ask(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock' AND strpos(query, %s) > 0 "
            "AND query_start > coalesce(%s::timestamptz, '-infinity')",
            self._schema,
            since,
        )
        return count

    def _ask(self, text: str, *values: Any) -> Any:
        row = self._looking.execute(text.encode(), values).fetchone()
        assert row is not None
        return row[0]

    def close(self) -> None:
        self._holding.close()
        self._looking.close()


@pytest.fixture
def holder(newest_postgres_url: str) -> Iterator[Holder]:
    with TaskQueue(newest_postgres_url) as queue:
        queue.count()  # the tables are there
    held = Holder(newest_postgres_url)
    yield held
    held.close()


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("size", SIZES)
async def test_a_worker_that_stops_while_its_claim_is_cut_off_leaves_nothing_running(
    newest_postgres_url: str, holder: Holder, size: Size
):
    with Proxy(urlsplit(newest_postgres_url).port or 0) as proxy, TaskQueue(newest_postgres_url) as watching:
        for number in range(size.rounds):
            queue = made(proxy, newest_postgres_url, name := f"job-{number}")
            worker = asyncio.ensure_future(queue.arun(TASKS, signals=False))
            await aeventually(lambda: len(watching.workers()) == 1)
            with holder.holds("SELECT FROM tasklib_claims FOR UPDATE"):
                ids = [watching.enqueue(name) for _ in range(TASKS)]
                await aeventually(lambda: holder.waiting() == 1)
                assert proxy.cut_client(lambda _: True)
                # The claim and, behind it, the worker that has noticed.
                await aeventually(lambda: holder.waiting() >= 2)
                worker.cancel()
                told = holder.now()
                await aeventually(lambda told=told: holder.waiting(told) >= 1)
            await asyncio.wait([worker], timeout=180)
            await queue.aclose()
            tasks = read(watching, ids)
            assert {(task.state, task.attempts, task.lost_count) for task in tasks} == {("pending", 0, 0)}
            assert watching.workers() == []


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("size", SIZES)
async def test_a_claim_that_reaches_the_server_after_its_worker_gave_it_up_takes_nothing(
    newest_postgres_url: str, holder: Holder, size: Size
):
    with Proxy(urlsplit(newest_postgres_url).port or 0) as proxy, TaskQueue(newest_postgres_url) as watching:
        queue = made(proxy, newest_postgres_url, "job")
        async with working(queue, concurrency=TASKS):
            await aeventually(lambda: len(watching.workers()) == 1)
            for _ in range(size.rounds):
                # Before it has locked anything; and there is enough for it and for many claims after it.
                with holder.holds("LOCK TABLE tasklib_hints IN ACCESS EXCLUSIVE MODE"):
                    # Due also for a claim that began before they were there.
                    due = datetime.now(UTC) - timedelta(minutes=1)
                    ids = [watching.enqueue("job", run_after=due) for _ in range(10 * TASKS)]
                    await aeventually(lambda: holder.waiting() == 1)
                    assert proxy.cut_client(lambda _: True)
                    await aeventually(lambda: holder.waiting() >= 2)
                await aeventually(lambda ids=ids: all(task.completed_at for task in read(watching, ids)))
                tasks = read(watching, ids)
                assert {(task.state, task.attempts, task.lost_count) for task in tasks} == {("completed", 1, 0)}


@pytest.mark.parametrize("size", SIZES)
async def test_what_a_claim_over_http_took_whose_answer_was_lost_is_given_back(newest_postgres_url: str, size: Size):
    with Proxy(urlsplit(newest_postgres_url).port or 0) as proxy:
        queue = TaskQueue(through(proxy, newest_postgres_url))
        async with service(queue) as http:
            worker = await register(http)
            assert await claim(http, worker) == []
            rounds = size.rounds
            while rounds:
                task_id = queue.enqueue("job")
                proxy.lose_answer(lambda pair, data: b"COMMIT" in data and TAKES in pair.heard)
                answer = await http.post(f"/api/workers/{worker}/claim", json={"limit": 10})
                assert proxy.has_lost
                if (
                    answer.status_code == 200
                ):  # What was lost is the answer to work of the service's own, on that connection.
                    [task] = answer.json()["tasks"]
                else:
                    assert answer.status_code == 503
                    rounds -= 1
                    [task] = await aeventually(lambda: claim(http, worker))
                assert (task["id"], task["attempt"]) == (str(task_id), 1)
                done = await http.post(f"/api/tasks/{task_id}/complete", json={"version": task["version"]})
                assert done.json()["status"] == "completed"
        await queue.aclose()


def made(proxy: Proxy, url: str, name: str) -> TaskQueue:
    queue = TaskQueue(Config(database_url=through(proxy, url)))

    async def job(payload: Any) -> None:
        note("start", current_context())
        note("end", current_context())

    queue.register_handler(name, job)
    return queue
