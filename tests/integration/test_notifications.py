"""Who is called when there is work: one idle worker of those that know the same, and the next when it is filled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest

from tasklib import Config, TaskQueue
from tasklib.storage.operations import claims, workers
from tasklib.storage.operations.workers import MAX_NOTIFIED
from tasklib.storage.postgres import listener
from tests.fixtures.backends import libpq_url
from tests.fixtures.counting import Journal, counting_workers
from tests.fixtures.queues import Face, open_queue
from tests.fixtures.waiting import PATIENCE, aeventually, eventually

FILL = "INSERT INTO tasklib_idle (instance, kind, until) VALUES (%s, %s, now() + interval '1 hour')"


@pytest.fixture
def queue(newest_postgres_url: str) -> Iterator[Face]:
    with open_queue(newest_postgres_url) as queue:
        yield queue


@pytest.fixture
def raw(newest_postgres_url: str, queue: Face) -> Iterator[psycopg.Connection]:
    queue.plain.migrate()
    with psycopg.connect(libpq_url(newest_postgres_url), autocommit=True) as connection:
        yield connection


def come(queue: Face, instance: UUID, *names: str) -> bool:
    return queue.do(lambda: workers.declare_idle(instance, names, 3600))


def heard_while(queue: Face, *steps: object) -> list[str]:
    """The notices of new work until a last one that is for everybody."""
    heard: list[str] = []
    over = threading.Event()

    def listen(event: str) -> None:
        if event.startswith("new"):
            heard.append(event)
        if event == "new":
            over.set()

    stop = queue.plain.database.subscribe(listen)
    for step in steps:
        assert callable(step)
        step()
    queue.do(workers.wake_workers)
    assert over.wait(PATIENCE)
    stop()
    return heard[:-1]


def test_only_so_many_workers_that_know_the_same_names_are_notified(queue: Face):
    instances = [queue.worker().instance for _ in range(MAX_NOTIFIED + 1)]

    assert [come(queue, instance, "job") for instance in instances] == [True] * MAX_NOTIFIED + [False]
    assert come(queue, queue.worker("mail").instance, "mail")

    queue.do(lambda: workers.declare_busy(instances[3], ["job"]))
    assert come(queue, instances[-1], "job")


def test_too_many_who_came_at_once_part_when_they_ask_again(queue: Face, raw: psycopg.Connection):
    instances = [uuid4() for _ in range(MAX_NOTIFIED + 3)]
    for instance in instances:
        raw.execute(FILL, (instance, workers.kind(["job"])))

    stay = {instance for instance in instances if come(queue, instance, "job")}

    assert stay == set(sorted(instances)[:MAX_NOTIFIED])


def test_a_look_around_goes_on_with_notifications_unless_enough_others_have_them(queue: Face, raw: psycopg.Connection):
    one, late = queue.worker().instance, UUID(int=2**128 - 1)
    assert come(queue, one, "job")
    raw.execute("UPDATE tasklib_idle SET until = now() - interval '1 second'")

    assert queue.do(lambda: claims.look_around(one, ["job"], notify_for=60.0)).is_notified
    assert heard_while(queue, lambda: queue.enqueue("job")) == [f"new:{one}"]
    for _ in range(MAX_NOTIFIED):
        raw.execute(FILL, (uuid4(), workers.kind(["job"])))
    assert not queue.do(lambda: claims.look_around(late, ["job"], notify_for=60.0)).is_notified


def test_an_insert_calls_one_worker_of_each_kind(queue: Face):
    jobs = [queue.worker().instance for _ in range(3)]
    mail = queue.worker("mail").instance
    assert all(come(queue, instance, "job") for instance in jobs)
    assert come(queue, mail, "mail")

    called = heard_while(queue, lambda: queue.enqueue("job"))

    assert len(called) == 2
    assert f"new:{mail}" in called
    assert set(called) & {f"new:{instance}" for instance in jobs}


def test_a_worker_that_is_filled_calls_another_of_its_kind(queue: Face):
    one, two = queue.worker().instance, queue.worker().instance
    assert come(queue, one, "job")
    assert come(queue, two, "job")
    assert come(queue, queue.worker("mail").instance, "mail")

    assert heard_while(queue, lambda: queue.do(lambda: workers.declare_busy(one, ["job"]))) == [f"new:{two}"]


@pytest.mark.backends("postgres-newest")
def test_one_insert_of_many_tasks_puts_all_idle_workers_to_work(database_url: str, tmp_path: Path):
    journal = Journal(tmp_path / "journal")
    with TaskQueue(database_url) as queue, counting_workers(database_url, journal, 3, pause=60.0):
        with psycopg.connect(libpq_url(database_url), autocommit=True) as raw:
            idle = "SELECT count(*) FROM tasklib_idle WHERE until > now()"
            eventually(lambda: raw.execute(idle).fetchone() == (3,))
            raw.execute("INSERT INTO tasks (name, kwargs) SELECT 'count', '{\"n\": 1}' FROM generate_series(1, 24)")

        eventually(lambda: sorted(journal.pids().values()) == [8, 8, 8])
        assert queue.count(state="running") == 24


class Waiting:
    """A worker in this process whose tasks, one at a time, go on until the end."""

    def __init__(self, url: str, poll_seconds: float = 600.0) -> None:
        self.queue = TaskQueue(Config(database_url=url, poll_interval_seconds=poll_seconds))
        self.begun = 0
        self.queue.task(self.job, name="job", max_concurrency=1)

    async def job(self) -> None:
        self.begun += 1
        await asyncio.Event().wait()

    async def __aenter__(self) -> Waiting:
        self._run = asyncio.ensure_future(self.queue.arun(concurrency=4, grace_seconds=0.0))
        return self

    async def __aexit__(self, *error: object) -> None:
        self._run.cancel()
        await asyncio.gather(self._run, return_exceptions=True)
        await self.queue.aclose()


async def test_a_worker_that_may_take_no_more_of_a_name_passes_the_call_on(
    raw: psycopg.Connection, newest_postgres_url: str
):
    def idle() -> int:
        row = raw.execute("SELECT count(*) FROM tasklib_idle").fetchone()
        return row[0] if row else 0

    async with Waiting(newest_postgres_url) as one:
        await one.queue.aenqueue("job")
        await aeventually(lambda: one.begun == 1 and idle() == 1)
        async with Waiting(newest_postgres_url) as two:
            await aeventually(lambda: idle() == 2)
            raw.execute(
                "DELETE FROM tasklib_idle WHERE instance <> (SELECT instance FROM tasklib_claims WHERE seqs <> '{}')"
            )

            await two.queue.aenqueue("job")

            await aeventually(lambda: two.begun == 1)
            assert one.begun == 1


async def test_an_idle_worker_that_is_not_notified_listens_to_nobody_and_looks_by_itself(
    raw: psycopg.Connection, newest_postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(listener, "LINGER_SECONDS", 0.0)
    for _ in range(MAX_NOTIFIED):
        raw.execute(FILL, (uuid4(), workers.kind(["job"])))
    silent = "SELECT count(*) FROM pg_stat_activity WHERE query = 'UNLISTEN *' AND datname = current_database()"

    async with Waiting(newest_postgres_url, poll_seconds=0.2) as worker:
        await aeventually(lambda: raw.execute(silent).fetchone() == (1,))
        await worker.queue.aenqueue("job")
        await aeventually(lambda: worker.begun == 1)


def test_workers_hear_of_an_event_unless_its_emitter_delivers_it(queue: Face, raw: psycopg.Connection) -> None:
    """A worker that delivered it too, at the same moment, would only be in the way."""
    heard: list[str] = []
    over = threading.Event()

    def listen(event: str) -> None:
        heard.append(event)
        if event == "new":
            over.set()

    come(queue, uuid4(), "a")
    stop = queue.plain.database.subscribe(listen)
    queue.emit("delivered", 1)
    queue.do(workers.wake_workers)
    assert over.wait(PATIENCE)
    assert heard.count("event") == 0

    over.clear()
    with raw.transaction():
        queue.emit("in the caller's transaction", 2, connection=raw)
    raw.execute("INSERT INTO tasklib_events (name) VALUES ('by SQL')")
    queue.do(workers.wake_workers)
    assert over.wait(PATIENCE)
    assert heard.count("event") == 2
    stop()
