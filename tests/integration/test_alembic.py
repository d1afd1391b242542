"""Alembic beside tasklib, in real environments: nothing of ours is proposed, a user's own changes still are."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config as AlembicConfig

from tasklib import ConfigurationError, TaskQueue
from tasklib.cli.main import main
from tasklib.contrib.alembic import include_name
from tasklib.contrib.sqlalchemy import TaskIdType, tables
from tasklib.storage.migrate import tables as our_tables
from tests.fixtures.backends import libpq_url

DATABASES = pytest.mark.backends("sqlite-file", "postgres-newest")
Postgres = pytest.mark.backends("postgres-newest")
# SQLAlchemy warns of one of our columns' types where it looks at all tables: also where a filter leaves it none.
pytestmark = [pytest.mark.filterwarnings("ignore:Did not recognize type 'xid8'"), pytest.mark.new_schema]

ENV = """
import sqlalchemy as sa
from alembic import context
from tasklib.contrib.alembic import include_name

metadata = sa.MetaData()
sa.Table("orders", metadata, sa.Column("id", sa.Integer, primary_key=True))
{models}

def mine(name, type_, parent_names):
    return name != "secret_table"

if context.is_offline_mode():
    context.configure(url=context.config.get_main_option("sqlalchemy.url"), target_metadata=metadata)
    with context.begin_transaction():
        context.run_migrations()
else:
    engine = sa.create_engine(context.config.get_main_option("sqlalchemy.url"), poolclass=sa.NullPool)
    with engine.connect() as connection:
        context.configure(connection=connection, target_metadata=metadata, {options})
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()
"""
TEMPLATE = """
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
from alembic import op
import sqlalchemy as sa
def upgrade():
    ${upgrades if upgrades else "pass"}
def downgrade():
    pass
"""
OURS = """
revision = "{number}"
down_revision = {before!r}
from alembic import op
import sqlalchemy as sa
from tasklib.contrib.alembic import upgrade as upgrade_tasklib
def upgrade():
    {body}
def downgrade():
    pass
"""


class Project:
    """Somebody's project with Alembic."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        (folder / "versions").mkdir(parents=True)
        (folder / "script.py.mako").write_text(TEMPLATE)
        self.configure("include_name=include_name")
        self.config = AlembicConfig()
        self.config.set_main_option("script_location", str(folder))
        self.config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))

    def configure(self, options: str, models: str = "") -> None:
        (self.folder / "env.py").write_text(ENV.format(options=options, models=models))

    def autogenerate(self) -> str:
        """What Alembic proposes; nothing is kept of it."""
        made: Any = command.revision(self.config, autogenerate=True)
        path = Path(made.path)
        text = path.read_text()
        path.unlink()
        return text

    def write(self, body: str, number: str = "one", before: str | None = None) -> None:
        (self.folder / "versions" / f"{number}.py").write_text(OURS.format(body=body, number=number, before=before))

    def execute(self, *statements: str) -> None:
        engine = sa.create_engine(self.url)
        with engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
        engine.dispose()


def alchemy_url(url: str) -> str:
    return url if url.startswith("sqlite") else libpq_url(url).replace("postgresql://", "postgresql+psycopg://")


def in_schema(url: str, schema: str) -> str:
    return f"{url.partition('?')[0]}?schema={schema}"


@pytest.fixture
def project(database_url: str, tmp_path: Path) -> Project:
    return Project(tmp_path / "migrations", alchemy_url(database_url))


@pytest.fixture
def queue(database_url: str) -> Iterator[TaskQueue]:
    with TaskQueue(database_url) as made:
        made.enqueue("job")
        yield made


# The filter


@DATABASES
def test_without_the_filter_alembic_proposes_to_drop_our_tables(project: Project, queue: TaskQueue) -> None:
    project.configure("")

    assert "drop_table('tasks'" in project.autogenerate()


@DATABASES
@pytest.mark.parametrize("options", ["include_name=include_name", "include_name=include_name(mine)"])
def test_with_it_nothing_of_ours_is_proposed_and_a_users_own_changes_are(
    project: Project, queue: TaskQueue, options: str
) -> None:
    project.configure(options)
    project.execute("CREATE TABLE forgotten (id integer PRIMARY KEY)")

    proposed = project.autogenerate()

    assert re.findall(r"op\.(\w+)\(['\"](\w+)", proposed) == [("create_table", "orders"), ("drop_table", "forgotten")]


@DATABASES
def test_another_filter_is_asked_too(project: Project, queue: TaskQueue) -> None:
    project.configure("include_name=include_name(mine)")
    project.execute("CREATE TABLE secret_table (id integer PRIMARY KEY)")

    assert "secret_table" not in project.autogenerate()


def test_in_a_schema_of_its_own_nothing_is_proposed_either(lone_postgres_url: str, tmp_path: Path) -> None:
    project = Project(tmp_path / "migrations", alchemy_url(lone_postgres_url))
    for url in (lone_postgres_url, in_schema(lone_postgres_url, "jobs")):
        with TaskQueue(url) as queue:
            queue.enqueue("job")
    project.configure("include_name=include_name, include_schemas=True")

    assert re.findall(r"op\.(\w+)\(['\"](\w+)", project.autogenerate()) == [("create_table", "orders")]


@Postgres
def test_a_users_own_tasks_in_another_schema_than_ours_is_compared(project: Project) -> None:
    project.configure(
        "include_name=include_name", 'sa.Table("tasks", metadata, sa.Column("id", sa.Integer, primary_key=True))'
    )
    project.execute("CREATE TABLE tasks (id integer PRIMARY KEY, old integer)")

    assert re.findall(r"op\.(\w+)\(['\"](\w+)['\"], ['\"](\w+)", project.autogenerate()) == [
        ("drop_column", "tasks", "old")
    ]


def test_names_are_exact() -> None:
    parents: Any = {"schema_name": None}

    for dialect in ("postgres", "sqlite"):
        assert [name for name in our_tables(dialect) if include_name(name, "table", parents)] == []
    assert include_name("tasklib_of_mine", "table", parents)
    assert include_name("tasks", "column", parents)
    assert include_name(None, "schema", parents)
    assert include_name(schema="jobs")("tasks", "table", parents)
    assert not include_name(schema="jobs")("tasks", "table", {"schema_name": "jobs"})
    with pytest.raises(ConfigurationError, match="include_name takes another filter or nothing, got"):
        include_name("tasks")  # type: ignore[call-overload]


# Our migrations inside a revision


@DATABASES
def test_a_revision_makes_the_tables(project: Project, database_url: str) -> None:
    project.write("upgrade_tasklib(op)")

    command.upgrade(project.config, "head")

    with TaskQueue(database_url) as queue:
        assert queue.migrate() == []
        assert queue.database.migration_script() == ""
        task_id = queue.enqueue("job")
        queue.register_handler("job", lambda payload: 42)
        queue.process_batch()
        assert task_id.wait(timeout=180) == 42
    project.write("assert upgrade_tasklib(op) == []", "two", "one")
    command.upgrade(project.config, "head")


@Postgres
def test_a_revision_that_fails_leaves_nothing_of_it(project: Project, database_url: str) -> None:
    project.write("upgrade_tasklib(op); raise RuntimeError('after it')")

    with pytest.raises(RuntimeError, match="after it"):
        command.upgrade(project.config, "head")

    with TaskQueue(database_url) as queue:
        assert queue.database.migration_script().startswith("-- 0001_initial")


def test_a_revision_makes_them_in_a_schema_of_their_own(lone_postgres_url: str, tmp_path: Path) -> None:
    project = Project(tmp_path / "migrations", alchemy_url(in_schema(lone_postgres_url, "public")))
    project.write("assert upgrade_tasklib(op, schema='jobs') == ['0001_initial']")

    command.upgrade(project.config, "head")

    with TaskQueue(in_schema(lone_postgres_url, "jobs")) as queue:
        assert queue.migrate() == []


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_a_revision_can_be_written_as_sql(dialect: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = "sqlite:///unused.db" if dialect == "sqlite" else "postgresql+psycopg://localhost/unused"
    project = Project(tmp_path / "migrations", url)
    project.write("upgrade_tasklib(op)")

    command.upgrade(project.config, "head", sql=True)

    written = capsys.readouterr().out
    assert re.search(r"CREATE TABLE (public\.|\"public\"\.)?tasks \(", written)
    assert "INSERT INTO" in written.partition("tasklib_migrations (version")[0][-40:]
    if dialect == "sqlite":
        connection = sqlite3.connect(tmp_path / "made.db")
        connection.executescript(written)
        connection.close()
        with TaskQueue(f"sqlite:///{tmp_path}/made.db") as queue:
            assert queue.migrate() == []


# What would run


@DATABASES
def test_migrate_prints_what_would_run_and_changes_nothing(
    database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(*arguments: str) -> str:
        assert main(["migrate", *arguments, "--dsn", database_url]) == 0
        return capsys.readouterr().out

    script = printed("--sql")

    assert script == printed("--sql")
    assert script.startswith("-- 0001_initial\n")
    if database_url.startswith("sqlite"):
        with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(script)
    else:
        with psycopg.connect(libpq_url(database_url), autocommit=True) as other:
            other.execute(script.encode())
    assert printed("--sql").endswith("is up to date: nothing to run\n")
    assert json.loads(printed("--json"))["applied"] == []


def test_it_makes_no_file(tmp_path: Path) -> None:
    assert main(["migrate", "--sql", "--dsn", f"sqlite:///{tmp_path}/tasks.db"]) == 0

    assert list(tmp_path.iterdir()) == []


# Reading with SQLAlchemy


@DATABASES
def test_tasks_are_joined_with_rows_of_the_program(project: Project, queue: TaskQueue) -> None:
    metadata = sa.MetaData()
    orders = sa.Table(
        "orders", metadata, sa.Column("id", sa.Integer, primary_key=True), sa.Column("task", TaskIdType())
    )
    engine = sa.create_engine(project.url)
    metadata.create_all(engine)
    tasks = tables().tasks
    with engine.begin() as connection:
        task_id = (
            queue.task(name="bill")(lambda number: None).options(tags={"a": 1}, connection=connection).submit(number=7)
        )
        connection.execute(orders.insert().values(id=1, task=task_id))
        found = connection.execute(
            sa.select(orders.c.id, tasks.c.id, tasks.c.state, tasks.c.kwargs, tasks.c.created_at).join_from(
                orders, tasks, tasks.c.id == orders.c.task
            )
        ).one()
    engine.dispose()

    task = queue.get(task_id)
    assert task is not None
    assert tuple(found) == (1, task_id, "pending", {"number": 7}, task.created_at)


@DATABASES
def test_every_column_is_there_and_times_can_be_compared(project: Project, queue: TaskQueue) -> None:
    queue.add_schedule("nightly", task="job", every=3600)
    (task,) = queue.list()
    engine, found = sa.create_engine(project.url), tables()
    with engine.connect() as connection:
        rows = [connection.execute(sa.select(each)).all() for each in (found.tasks, found.workers, found.schedules)]
        early = connection.execute(sa.select(found.tasks.c.id).where(found.tasks.c.created_at < task.created_at)).all()
        same = connection.execute(sa.select(found.tasks.c.id).where(found.tasks.c.created_at == task.created_at)).all()
    engine.dispose()

    assert [len(each) for each in rows] == [1, 0, 1]
    assert (rows[0][0].created_at, rows[0][0].kwargs, rows[2][0].plan["task"]) == (task.created_at, {}, "job")
    assert (early, [row.id for row in same]) == ([], [task.id])


@pytest.mark.parametrize("write", [sa.insert, sa.update, sa.delete])
def test_they_cannot_be_written_to(write: Any) -> None:
    with pytest.raises(sa.exc.ArgumentError, match="subject table for an INSERT, UPDATE or DELETE expected"):
        write(tables().tasks)
