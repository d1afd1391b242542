"""Each fault is caused for real, found with its remedy, repaired by it, and then no longer found."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psycopg
import pytest

from tasklib import doctor
from tasklib.doctor import Patience, examine
from tasklib.storage import migrate
from tasklib.storage.operations import numbers
from tasklib.storage.statement import Operation, Row, Statement
from tests.fixtures.backends import libpq_url
from tests.fixtures.queues import Face, open_queue

Both = pytest.mark.backends("sqlite-file", "postgres-newest")
Postgres = pytest.mark.backends("postgres-newest")
OF_THE_SERVER = {"not-durable", "long-transaction", "clock-skew"}
"""What is true of a test server, or of other tests on it."""


@pytest.fixture
def queue(database_url: str) -> Iterator[Face]:
    with open_queue(database_url) as face:
        yield face


def codes(queue: Face, patience: Patience | None = None, ignored: set[str] = OF_THE_SERVER) -> set[str]:
    return {each.code for each in examine(queue.plain, patience) if each.code not in ignored}


def assert_found_and_repaired(queue: Face, code: str, remedy: Callable[[], object], says: str) -> None:
    found = [each for each in examine(queue.plain) if each.code == code]
    assert [each for each in found if says in each.remedy], found
    remedy()
    assert codes(queue) == set()


@Both
def test_a_healthy_queue_has_no_findings(queue: Face) -> None:
    worker = queue.worker()
    queue.enqueue("job")
    worker.complete(worker.take())
    queue.enqueue("job")
    queue.add_schedule("s", task="job", every=60)
    queue.set_rate_limit(5)
    assert codes(queue) == set()


@Both
def test_a_schema_that_is_behind(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    every = migrate.migrations
    monkeypatch.setattr(migrate, "migrations", lambda dialect: every(dialect)[:-1])
    with open_queue(database_url) as old:
        old.pauses()
    monkeypatch.undo()
    with open_queue(database_url) as fresh:
        (found,) = examine(fresh.plain)
        assert (found.code, found.remedy) == ("schema-behind", "tasklib migrate")
        fresh.migrate()
        assert codes(fresh) == set()


@Both
def test_no_worker_for_a_type(queue: Face) -> None:
    queue.enqueue("job")
    assert_found_and_repaired(queue, "no-worker", queue.worker, "start a worker")


@Both
def test_a_dead_worker(queue: Face) -> None:
    queue.worker(timeout_seconds=5).beat()
    queue.advance(60)
    assert_found_and_repaired(queue, "dead-worker", queue.recover, "start a worker")


@Both
def test_tasks_far_behind(queue: Face) -> None:
    worker = queue.worker(timeout_seconds=10_000)
    queue.enqueue("job")
    queue.advance(700)
    assert_found_and_repaired(queue, "far-behind", lambda: worker.complete(worker.take()), "more workers")


@Both
def test_running_tasks_that_nobody_holds(queue: Face) -> None:
    worker = queue.worker()
    queue.enqueue("job")
    worker.take(lease=5)
    queue.sql("DELETE FROM tasklib_claims")
    queue.sql("DELETE FROM tasklib_workers")
    queue.advance(10)

    def repair() -> None:
        queue.recover_stale_tasks()
        queue.worker()

    assert_found_and_repaired(queue, "orphans", repair, "start a worker")


@Both
def test_paused_and_forgotten(queue: Face) -> None:
    queue.pause("job", by="ada")
    queue.advance(7200)
    (found,) = [each for each in examine(queue.plain) if each.code == "paused-long"]
    assert "ada" in found.text
    assert_found_and_repaired(queue, "paused-long", lambda: queue.resume("job"), "tasklib resume job")


@Both
def test_a_limit_that_nobody_can_meet(queue: Face) -> None:
    queue.worker()
    for _ in range(10):
        queue.enqueue("job")
    queue.set_rate_limit(0.0001, "job")
    assert_found_and_repaired(queue, "limit-too-low", lambda: queue.set_rate_limit(10, "job"), "raise the limit")


@Both
def test_a_schedule_that_nobody_runs(queue: Face) -> None:
    queue.worker(timeout_seconds=10_000)
    queue.add_schedule("s", task="job", every=60)
    queue.advance(1000)
    assert_found_and_repaired(queue, "schedule-late", queue.fire_schedules, "start a worker")


@Both
def test_a_missing_index(queue: Face) -> None:
    queue.count()
    made = (
        "CREATE INDEX tasks_trouble ON tasks (trouble, seq, name, due_at) WHERE trouble IS NOT NULL"
        if queue.is_sqlite
        else "CREATE INDEX tasks_trouble ON tasks (trouble, seq) INCLUDE (name, due_at) WHERE trouble IS NOT NULL"
    )
    queue.sql("DROP INDEX tasks_trouble")
    assert_found_and_repaired(queue, "missing-index", lambda: queue.sql(made), "0001_initial")


@Postgres
def test_a_trigger_that_is_switched_off(queue: Face) -> None:
    queue.count()
    queue.sql("ALTER TABLE tasks DISABLE TRIGGER tasks_wake")
    enable = "ALTER TABLE tasks ENABLE TRIGGER tasks_wake"
    assert_found_and_repaired(queue, "missing-trigger", lambda: queue.sql(enable), "0001_initial")


@Postgres
def test_autovacuum_that_is_switched_off(queue: Face) -> None:
    queue.count()
    queue.sql("ALTER TABLE tasks SET (autovacuum_enabled = off)")
    reset = "ALTER TABLE tasks RESET (autovacuum_enabled)"
    assert_found_and_repaired(queue, "autovacuum-off", lambda: queue.sql(reset), reset)


@Postgres
def test_a_table_that_does_not_survive_a_crash(queue: Face) -> None:
    queue.count()
    queue.sql("ALTER TABLE tasks SET UNLOGGED")
    logged = "ALTER TABLE tasks SET LOGGED"
    assert_found_and_repaired(queue, "unlogged", lambda: queue.sql(logged), logged)


@Postgres
def test_a_server_that_is_not_durable(queue: Face) -> None:
    queue.count()
    (server,) = queue.do(lambda: look_at_server())
    careless = {**server, "durable": False, "clock": doctor.time.time(), "oldest_transaction": None}
    (found,) = doctor._judge_server(careless, doctor.time.time(), Patience())
    assert (found.code, "fsync = on" in found.remedy) == ("not-durable", True)


def look_at_server() -> Operation[Sequence[Row]]:
    return (yield Statement("look_at_server"))


@Postgres
def test_a_long_transaction(queue: Face) -> None:
    queue.count()
    with open_transaction(queue) as pid:
        found = [
            each for each in examine(queue.plain, Patience(transaction_seconds=-1)) if each.code == "long-transaction"
        ]
        assert found
        assert "pg_terminate_backend" in found[0].remedy
        queue.sql(f"SELECT pg_terminate_backend({pid})")


@contextmanager
def open_transaction(queue: Face) -> Iterator[int]:
    connection = psycopg.connect(libpq_url(queue.url))
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    yield row[0]
    connection.close()


@Postgres
def test_a_clock_that_is_wrong(queue: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.count()
    real = doctor.time.time
    monkeypatch.setattr(doctor.time, "time", lambda: real() + 3600)
    (found,) = [each for each in examine(queue.plain) if each.code == "clock-skew"]
    assert ("ahead" in found.text, found.remedy) == (True, "let both keep time by NTP")


@Postgres
def test_dead_rows_that_are_not_cleaned_away(queue: Face) -> None:
    queue.count()
    queue.sql("ALTER TABLE tasks SET (autovacuum_enabled = off)")
    queue.sql("INSERT INTO tasks (name) SELECT 'job' FROM generate_series(1, 200)")
    queue.sql("DELETE FROM tasks")
    queue.sql("SELECT pg_stat_force_next_flush()")
    ignored = OF_THE_SERVER | {"autovacuum-off"}
    few = Patience(dead_rows=100)
    assert codes(queue, few, ignored) == {"bloat"}
    queue.sql("VACUUM (ANALYZE) tasks")
    assert codes(queue, few, ignored) == set()


@pytest.mark.backends("sqlite-file")
def test_an_old_sqlite_and_a_file_without_its_log(queue: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.count()
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 39, 0))
    assert codes(queue) == {"old-sqlite"}
    monkeypatch.undo()
    assert {each.code for each in doctor._judge_file("delete")} == {"not-wal"}


@Both
def test_keeping_the_books_leaves_nothing_to_find(queue: Face) -> None:
    queue.do(lambda: numbers.keep_books(queue.now))
    assert codes(queue) == set()
