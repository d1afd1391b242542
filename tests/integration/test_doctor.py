"""Each fault is caused for real, found with its remedy, repaired by it, and then no longer found."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

import pytest

from tasklib.doctor import Finding, Thresholds, examine
from tasklib.storage import migrate
from tasklib.storage.operations import statistics
from tasklib.storage.statement import Operation, Row, Statement
from tests.fixtures import python
from tests.fixtures.queues import Face, open_queue
from tests.integration.test_schema import with_future

Both = pytest.mark.backends("sqlite-file", "postgres-newest")
Postgres = pytest.mark.backends("postgres-newest")
OF_THE_SERVER = {"not-durable", "long-transaction", "clock-skew"}
"""What is true of a test server, or of other tests on it."""
WITH_OLD_SQLITE = "import sys, pysqlite3; sys.modules['sqlite3'] = pysqlite3\n"
DOCTOR = """
import sys
from tasklib.cli.main import main
sys.exit(main(["doctor", "--json", "--database-url", sys.argv[1]]))
"""


@pytest.fixture
def queue(database_url: str) -> Iterator[Face]:
    with open_queue(database_url) as face:
        yield face


def examined(queue: Face, thresholds: Thresholds | None = None) -> list[Finding]:
    return examine(queue.plain.config, thresholds, clock=queue.plain.clock)


def codes(queue: Face, thresholds: Thresholds | None = None, ignored: set[str] = OF_THE_SERVER) -> set[str]:
    return {each.code for each in examined(queue, thresholds) if each.code not in ignored}


def assert_found_and_repaired(queue: Face, code: str, remedy: Callable[[], object], says: str) -> None:
    found = [each for each in examined(queue) if each.code == code]
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
    with open_queue(database_url) as old:
        old.pauses()
    with_future(monkeypatch)
    with open_queue(database_url) as fresh:
        (found,) = examined(fresh)
        assert (found.code, found.remedy) == ("schema-behind", "tasklib migrate")
        assert "auto_migrate" not in found.text
        fresh.migrate()
        assert codes(fresh) == set()


@Both
def test_a_schema_that_is_newer_than_this_code(queue: Face) -> None:
    queue.migrate()
    queue.sql("INSERT INTO tasklib_migrations (version, name, min_compatible) VALUES (9999, 'future', 9999)")
    (found,) = examined(queue)
    assert (found.code, found.remedy) == ("schema-behind", "upgrade tasklib here")


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
    (found,) = [each for each in examined(queue) if each.code == "paused-long"]
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
    queue.migrate()
    queue.sql("DROP INDEX tasks_trouble")
    again = made_by("0001_initial", "INDEX tasks_trouble", queue)
    assert_found_and_repaired(queue, "missing-index", lambda: queue.sql(again), "0001_initial")


def made_by(migration: str, what: str, queue: Face) -> str:
    """The statement of a migration that makes it."""
    (text,) = [each.text for each in migrate.migrations(queue.plain.database.dialect) if each.name == migration]
    found = re.search(rf"^CREATE {what} .*?;$", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[0].replace("{schema}.", "")


@Both
def test_every_index_and_trigger_of_the_table_is_looked_for(queue: Face) -> None:
    queue.migrate()
    there = {row["name"] for row in queue.do(look_at_parts)}
    by_constraints = {name for name in there if name.startswith("sqlite_autoindex") or name == "tasks_pkey"}
    assert there - by_constraints == {part.name for part in migrate.parts(queue.plain.database.dialect)}


def look_at_parts() -> Operation[Sequence[Row]]:
    return (yield Statement("look_at_parts"))


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
def test_dead_rows_that_are_not_cleaned_away(queue: Face) -> None:
    queue.count()
    queue.sql("ALTER TABLE tasks SET (autovacuum_enabled = off)")
    queue.sql("INSERT INTO tasks (name) SELECT 'job' FROM generate_series(1, 200)")
    queue.sql("DELETE FROM tasks")
    queue.sql("SELECT pg_stat_force_next_flush()")
    ignored = OF_THE_SERVER | {"autovacuum-off"}
    few = Thresholds(dead_rows=100)
    assert codes(queue, few, ignored) == {"bloat"}
    queue.sql("VACUUM (ANALYZE) tasks")
    assert codes(queue, few, ignored) == set()


@Both
def test_alembic_beside_our_tables(queue: Face) -> None:
    queue.count()
    queue.sql("CREATE TABLE alembic_version (version_num varchar(32) PRIMARY KEY)")
    assert_found_and_repaired(
        queue,
        "beside-alembic",
        lambda: queue.sql("DROP TABLE alembic_version"),
        "include_name=tasklib.contrib.alembic.include_name",
    )


def test_a_finding_that_is_known_can_be_ignored(sqlite_url: str) -> None:
    with open_queue(sqlite_url) as queue:
        queue.count()
        queue.sql("CREATE TABLE alembic_version (version_num varchar(32) PRIMARY KEY)")
    ignoring = DOCTOR.replace('"doctor",', '"doctor", "--ignore", "beside-alembic",')

    assert [each["code"] for each in doctor_says(DOCTOR, sqlite_url)[1]] == ["beside-alembic"]
    assert doctor_says(ignoring, sqlite_url) == (0, [])


def test_a_file_whose_log_cannot_be_turned_on(sqlite_url: str) -> None:
    with open_queue(sqlite_url) as queue:
        queue.migrate()
    other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    other.execute("PRAGMA journal_mode = DELETE")
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM tasks")
    with open_queue(sqlite_url, busy_timeout_seconds=0.05) as queue:
        (found,) = examined(queue)
        assert found.code == "not-wal"
        assert "keeps" in found.text
        assert "end what holds the file" in found.remedy
        other.close()
        assert codes(queue) == set()


def test_an_old_sqlite(sqlite_url: str) -> None:
    pytest.importorskip("pysqlite3", reason="SQLite 3.39 is to be had for Python 3.11 on Linux only")
    with open_queue(sqlite_url) as queue:
        queue.migrate()
    code, (found,) = doctor_says(WITH_OLD_SQLITE + DOCTOR, sqlite_url)
    assert (code, found["code"], "SQLite 3.39.4" in found["text"]) == (1, "old-sqlite", True)
    assert "newer Python" in found["remedy"]
    assert doctor_says(DOCTOR, sqlite_url) == (0, [])


def doctor_says(program: str, url: str) -> tuple[int, list[dict[str, str]]]:
    command = [sys.executable, "-c", program, url]
    ran = python.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return ran.returncode, json.loads(ran.stdout)["findings"]


@Both
def test_keeping_the_books_leaves_nothing_to_find(queue: Face) -> None:
    queue.do(lambda: statistics.keep_statistics())
    assert codes(queue) == set()
