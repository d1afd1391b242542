"""The tables: made on first use, checked ever after, and never somebody else's."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tasklib import (
    Config,
    ForeignTable,
    SchemaMismatch,
    SchemaMissing,
    SchemaOutdated,
    SchemaTooNew,
    StorageError,
    TaskQueue,
)
from tasklib.cli.main import main
from tasklib.doctor import examine
from tasklib.storage import migrate
from tasklib.storage.migrate import Migration
from tests.fixtures.backends import libpq_url
from tests.fixtures.processes import ROOT, together
from tests.fixtures.queues import open_queue

pytestmark = pytest.mark.new_schema  # what makes tables is tested here

ON_DISK = pytest.mark.backends("sqlite-file", "postgres")  # where one connection leaves something for the next

FUTURE = Migration(
    9999, "9999_future", "-- min_compatible: 1\nALTER TABLE {schema}.tasks ADD COLUMN future integer;", 1
)


@pytest.fixture
def raw(database_url: str) -> Iterator[Any]:
    """A bare connection to the test's database."""
    if database_url.startswith("sqlite"):
        connection: Any = sqlite3.connect(database_url.removeprefix("sqlite:///"), isolation_level=None)
    else:
        connection = psycopg.connect(libpq_url(database_url), autocommit=True)
    yield connection
    connection.close()


def tables(raw: Any) -> set[str]:
    if isinstance(raw, sqlite3.Connection):
        rows = raw.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    else:
        rows = raw.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema")
    return {row[0] for row in rows.fetchall()}


def with_future(monkeypatch: pytest.MonkeyPatch, text: str = FUTURE.text) -> None:
    """Let this process know one migration more than the database has."""
    known = migrate.migrations

    def more(dialect: str) -> tuple[Migration, ...]:
        shown = text.replace("{schema}.", "") if dialect == "sqlite" else text
        return (*known(dialect), Migration(FUTURE.version, FUTURE.name, shown, 1))

    monkeypatch.setattr(migrate, "migrations", more)


@ON_DISK
def test_nothing_is_opened_before_the_first_use(database_url: str, raw: Any):
    TaskQueue(database_url)

    assert tables(raw) == set()


@ON_DISK
def test_the_first_use_makes_the_tables(database_url: str, raw: Any):
    with TaskQueue(database_url) as queue:
        assert queue.count() == 0

    assert {"tasks", "tasklib_migrations", "tasklib_workers"} <= tables(raw)


@ON_DISK
def test_with_auto_migrate_off_missing_tables_are_an_error_and_stay_missing(database_url: str, raw: Any):
    with open_queue(database_url, auto_migrate=False) as queue:
        with pytest.raises(SchemaMissing, match="tasklib migrate"):
            queue.enqueue("job")

    assert tables(raw) == set()


def test_migrate_works_with_auto_migrate_off(database_url: str):
    with open_queue(database_url, auto_migrate=False) as queue:
        assert queue.plain.migrate()[0].startswith("0001_")
        assert queue.enqueue("job").created


async def test_migrating_has_an_awaiting_form(database_url: str):
    async with TaskQueue(database_url) as queue:
        assert (await queue.amigrate())[0].startswith("0001_")
        assert await queue.amigrate() == []
        assert await queue.acount() == 0


def test_migrating_again_does_nothing(database_url: str):
    with open_queue(database_url) as queue:
        applied = queue.plain.migrate()
        task_id = queue.enqueue("job")

        assert applied == [each.name for each in migrate.migrations(queue.plain.database.dialect)]
        assert queue.plain.migrate() == []
        assert queue.read(task_id).id == task_id


@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_processes_migrating_at_once_apply_everything_exactly_once(database_url: str, raw: Any):
    script = """
from tasklib import TaskQueue
queue = TaskQueue(sys.argv[1])
ready()
print(json.dumps(queue.migrate()))
"""
    answers = together(script, [[database_url]] * 4)

    names = [name for answer in answers for name in answer]
    dialect = "sqlite" if database_url.startswith("sqlite") else "postgres"
    assert sorted(names) == [each.name for each in migrate.migrations(dialect)]
    assert raw.execute("SELECT count(*) FROM tasklib_migrations").fetchone()[0] == len(names)


@ON_DISK
def test_a_table_of_that_name_that_is_not_ours_is_not_touched(database_url: str, raw: Any):
    raw.execute("CREATE TABLE tasks (id integer, title text)")
    raw.execute("INSERT INTO tasks VALUES (1, 'theirs')")

    with TaskQueue(database_url) as queue:
        for use in (queue.count, queue.migrate, lambda: queue.enqueue("job")):
            with pytest.raises(ForeignTable, match="not touched"):
                use()

    assert tables(raw) == {"tasks"}
    assert raw.execute("SELECT * FROM tasks").fetchall() == [(1, "theirs")]


@pytest.mark.backends("sqlite-file")
@pytest.mark.parametrize(
    "theirs", ["TABLE Tasks (id integer)", "VIEW tasks AS SELECT 1 AS id", "INDEX tasks ON other (id)"]
)
def test_what_sqlite_would_take_for_our_table_is_not_touched(database_url: str, raw: Any, theirs: str):
    raw.execute("CREATE TABLE other (id integer)")
    raw.execute(f"CREATE {theirs}")
    before = raw.execute("SELECT name, sql FROM sqlite_master").fetchall()

    with TaskQueue(database_url) as queue, pytest.raises(ForeignTable, match="not touched"):
        queue.count()

    assert raw.execute("SELECT name, sql FROM sqlite_master").fetchall() == before


@ON_DISK
def test_a_schema_too_new_is_refused_and_left_alone(database_url: str, raw: Any):
    with TaskQueue(database_url) as queue:
        queue.enqueue("job")
    raw.execute("INSERT INTO tasklib_migrations (version, name, min_compatible) VALUES (9999, '9999_future', 9999)")

    with TaskQueue(database_url) as queue:
        for use in (queue.count, queue.migrate, lambda: queue.enqueue("job")):
            with pytest.raises(SchemaTooNew, match=r"9999.*upgrade"):
                use()

    assert raw.execute("SELECT count(*) FROM tasks").fetchone()[0] == 1


@ON_DISK
@pytest.mark.parametrize("made", ["by other files", "before checksums"])
def test_tables_made_by_other_migrations_are_refused_and_left_alone(
    database_url: str, raw: Any, made: str, capsys: pytest.CaptureFixture[str]
):
    with TaskQueue(database_url) as queue:
        queue.enqueue("job")
    if made == "by other files":
        raw.execute("UPDATE tasklib_migrations SET checksum = 'other' WHERE version = 1")
    else:
        raw.execute("ALTER TABLE tasklib_migrations DROP COLUMN checksum")

    with TaskQueue(database_url) as queue:
        for use in (queue.count, queue.migrate, lambda: queue.enqueue("job")):
            with pytest.raises(SchemaMismatch, match=r"0001_\w+.*nothing was changed.*start over"):
                use()
    assert raw.execute("SELECT count(*) FROM tasks").fetchone()[0] == 1
    for command, code in (("migrate", 3), ("doctor", 1)):
        assert main([command, "--database-url", database_url]) == code
        said = capsys.readouterr()
        assert "made by another tasklib" in said.out + said.err
    (found,) = examine(Config(database_url=database_url))
    assert (found.code, "start over" in found.remedy) == ("schema-mismatch", True)


def test_what_the_docs_print_removes_what_is_ours_and_nothing_else(newest_postgres_url: str):
    page = (ROOT / "docs" / "production" / "migrations-and-schemas.md").read_text()
    with TaskQueue(newest_postgres_url) as queue:
        queue.enqueue("job")
    with psycopg.connect(libpq_url(newest_postgres_url), autocommit=True) as connection:
        connection.execute("CREATE TABLE theirs (id integer)")
        connection.execute(page.partition("```sql\n")[2].partition("```")[0].encode())
        assert tables(connection) == {"theirs"}

    with TaskQueue(newest_postgres_url) as queue:
        assert queue.count() == 0


@ON_DISK
def test_a_newer_schema_that_is_compatible_works(database_url: str, raw: Any):
    with TaskQueue(database_url) as queue:
        queue.enqueue("job")
    raw.execute("INSERT INTO tasklib_migrations (version, name, min_compatible) VALUES (9999, '9999_future', 1)")
    raw.execute("ALTER TABLE tasks ADD COLUMN future integer")

    with TaskQueue(database_url) as queue:
        queue.enqueue("job")
        assert queue.count() == 2
        assert queue.migrate() == []


@ON_DISK
def test_old_code_goes_on_while_new_code_migrates(database_url: str, monkeypatch: pytest.MonkeyPatch):
    with TaskQueue(database_url) as old, TaskQueue(database_url) as new:
        first = old.enqueue("job")
        with_future(monkeypatch)

        assert new.migrate() == ["9999_future"]
        second = old.enqueue("job")

        assert {task.id for task in new.list()} == {first, second}


@ON_DISK
def test_outdated_tables_are_brought_up_to_date_by_the_first_use(
    database_url: str, raw: Any, monkeypatch: pytest.MonkeyPatch
):
    with TaskQueue(database_url) as queue:
        task_id = queue.enqueue("job")
    with_future(monkeypatch)

    with TaskQueue(database_url) as queue:
        assert [task.id for task in queue.list()] == [task_id]
    assert raw.execute("SELECT future FROM tasks").fetchall() == [(None,)]


@ON_DISK
def test_with_auto_migrate_off_outdated_tables_are_an_error(database_url: str, monkeypatch: pytest.MonkeyPatch):
    with TaskQueue(database_url) as queue:
        queue.enqueue("job")
    with_future(monkeypatch)

    with open_queue(database_url, auto_migrate=False) as queue:
        with pytest.raises(SchemaOutdated, match="9999_future"):
            queue.enqueue("job")


@ON_DISK
def test_a_migration_that_fails_leaves_nothing_of_itself(database_url: str, raw: Any, monkeypatch: pytest.MonkeyPatch):
    with TaskQueue(database_url) as queue:
        queue.enqueue("job")
    with monkeypatch.context() as patch:
        with_future(patch, FUTURE.text + "\nINSERT INTO {schema}.no_such_table VALUES (1);")
        with TaskQueue(database_url) as queue, pytest.raises(StorageError, match="no_such_table"):
            queue.migrate()

    with TaskQueue(database_url) as queue:
        assert queue.count() == 1
    assert raw.execute("SELECT count(*) FROM tasklib_migrations WHERE version = 9999").fetchone()[0] == 0
    with_future(monkeypatch)
    with TaskQueue(database_url) as queue:
        assert queue.migrate() == ["9999_future"]
