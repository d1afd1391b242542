"""Submitting inside the transaction of the caller's own connection, for every kind of connection and both databases."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import aiosqlite
import asyncpg
import django.db
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import scalar_row
from sqlalchemy.ext import asyncio as sqlalchemy_async

from tasklib.core.config import Config
from tasklib.core.queue_info import TaskFilter
from tasklib.core.task import NewTask, Task, TaskBatch, TaskState, first_of_many
from tasklib.core.task_id import TaskId
from tasklib.errors import DatabaseBusy, DatabaseUnavailable, SchemaMissing, UniqueConflict
from tasklib.storage import connect
from tasklib.storage.database import Database
from tasklib.storage.operations.claims import Claim, claim_tasks
from tasklib.storage.operations.reading.lists import list_tasks
from tasklib.storage.operations.tasks import submit_batch, submit_tasks
from tasklib.storage.operations.workers import Registration, register_worker
from tests.fixtures.backends import libpq_url
from tests.integration import callers
from tests.integration.callers import Caller, a_task, migrated, stored_in


@dataclass
class Scene:
    """A queue's database, and a program that has a connection of its own to it."""

    url: str
    database: Database
    caller: Caller

    def submit(self, *new: NewTask) -> list[Any]:
        return self.caller.submit(self.database, *new)

    def stored(self) -> list[Task]:
        return stored_in(self.database)


KINDS = [("postgres", kind) for kind in callers.POSTGRES] + [("sqlite", kind) for kind in callers.SQLITE]


@pytest.fixture(params=KINDS, ids="-".join)
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    backend, kind = request.param
    url = request.getfixturevalue("newest_postgres_url" if backend == "postgres" else "sqlite_url")
    opener = (callers.POSTGRES if backend == "postgres" else callers.SQLITE)[kind]
    database = migrated(url)
    with opener(url) as caller:
        caller.begin()
        yield Scene(url, database, caller)
    database.close()


@pytest.fixture
def postgres(newest_postgres_url: str) -> Iterator[Database]:
    database = migrated(newest_postgres_url)
    yield database
    database.close()


@pytest.fixture
def sqlite(sqlite_url: str) -> Iterator[Database]:
    database = migrated(sqlite_url)
    yield database
    database.close()


def test_a_rolled_back_transaction_leaves_no_task(scene: Scene) -> None:
    scene.submit(a_task())
    scene.caller.rollback()

    assert scene.stored() == []


def test_a_committed_transaction_leaves_one_task_that_nobody_saw_before(scene: Scene) -> None:
    new = a_task(kwargs={"to": "50% of: a:b", "n": 1})

    [task_id] = scene.submit(new)
    before = scene.stored()
    scene.caller.commit()

    assert before == []
    [task] = scene.stored()
    assert (task.id, task.state, task.kwargs) == (new.id, TaskState.PENDING, new.kwargs)
    assert (task_id, task_id.created) == (new.id, True)
    assert claim(scene.database) == [new.id]


def test_a_batch_commits_and_rolls_back_with_the_caller(scene: Scene) -> None:
    batch = TaskBatch(a_task(id=first_of_many(uuid4()), timeout_seconds=30), '[{"n": 1}, {"n": "%s"}]', 2)
    scene.caller.run(scene.database, lambda: submit_batch(batch))  # the first statement of the transaction
    scene.caller.rollback()
    assert scene.stored() == []

    scene.caller.begin()
    scene.submit(*[a_task() for _ in range(3)])
    scene.caller.run(scene.database, lambda: submit_batch(batch))
    assert scene.stored() == []
    scene.caller.commit()
    assert len(scene.stored()) == 5
    assert [task.kwargs for task in scene.stored() if task.timeout_seconds == 30] == [{"n": "%s"}, {"n": 1}]


def test_a_held_key_returns_its_holder(scene: Scene) -> None:
    [held] = submit_beside(scene, a_task(unique_key="k"))

    [answer] = scene.submit(a_task(unique_key="k", on_conflict="return"))
    scene.caller.commit()

    assert (answer, answer.created) == (held, False)
    assert [task.id for task in scene.stored()] == [held]


def test_a_held_key_raises_and_the_transaction_goes_on(scene: Scene) -> None:
    [held] = submit_beside(scene, a_task(unique_key="k"))

    with pytest.raises(UniqueConflict) as conflict:
        scene.submit(a_task(unique_key="k", on_conflict="raise"))
    [other] = scene.submit(a_task())
    scene.caller.commit()

    assert conflict.value.existing_id == held
    assert {task.id for task in scene.stored()} == {held, other}


def test_a_held_key_is_replaced_when_the_caller_commits(scene: Scene) -> None:
    [held] = submit_beside(scene, a_task(unique_key="k", kwargs={"n": 1}))
    replacement = a_task(unique_key="k", kwargs={"n": 2}, on_conflict="replace")

    [answer] = scene.submit(replacement)
    scene.caller.rollback()
    assert [task.kwargs for task in scene.stored()] == [{"n": 1}]

    scene.caller.begin()
    scene.submit(replacement)
    scene.caller.commit()
    assert [(task.id, task.kwargs) for task in scene.stored()] == [(held, {"n": 2})]
    assert (answer, answer.created) == (held, False)


def test_a_refused_batch_leaves_nothing_even_if_the_caller_goes_on_and_commits(scene: Scene) -> None:
    [held] = submit_beside(scene, a_task(unique_key="k"))

    with pytest.raises(UniqueConflict):
        scene.submit(a_task(), a_task(unique_key="k", on_conflict="raise"))
    [other] = scene.submit(a_task())
    scene.caller.commit()

    assert {task.id for task in scene.stored()} == {held, other}


def test_a_key_held_in_the_same_transaction_is_seen(scene: Scene) -> None:
    [first] = scene.submit(a_task(unique_key="k"))
    [second] = scene.submit(a_task(unique_key="k"))
    scene.caller.commit()

    assert (second, second.created) == (first, False)


def test_missing_tables_are_told_as_a_connection_to_another_database(scene: Scene) -> None:
    hide_tables(scene.url)

    with pytest.raises(SchemaMissing, match="must be open on the queue's own database"):
        scene.submit(a_task())
    scene.caller.rollback()


def test_every_operation_gives_the_same_rows_on_the_callers_connection(scene: Scene) -> None:
    [task_id] = submit_beside(scene, a_task(tags={"a": 1}, timeout_seconds=30))
    caller, database = scene.caller, scene.database

    def read() -> Any:
        return list_tasks(TaskFilter(name="mail", tags={"a": 1}, ids=(task_id,)), limit=5)

    found = caller.run(database, read)
    caller.rollback()

    assert found == scene.stored()


def test_a_blocking_connection_serves_an_awaiting_call(postgres: Database, newest_postgres_url: str) -> None:
    with psycopg.connect(callers.plain(newest_postgres_url)) as connection:
        asyncio.run(postgres.arun_on(connection, lambda: submit_tasks([a_task()])))

    assert len(stored_in(postgres)) == 1


def test_a_session_inside_run_sync_serves_a_blocking_call(postgres: Database, newest_postgres_url: str) -> None:
    async def program() -> None:
        engine = sqlalchemy_async.create_async_engine(callers.sqlalchemy_url(newest_postgres_url, "asyncpg"))
        async with sqlalchemy_async.AsyncSession(engine) as session, session.begin():
            await session.run_sync(lambda s: postgres.run_on(s, lambda: submit_tasks([a_task()])))
        await engine.dispose()

    asyncio.run(program())
    assert len(stored_in(postgres)) == 1


def test_autocommit_keeps_a_batch_at_once(postgres: Database, newest_postgres_url: str) -> None:
    with psycopg.connect(callers.plain(newest_postgres_url), autocommit=True) as connection:
        postgres.run_on(connection, lambda: submit_tasks([a_task(), a_task()]))
        assert len(stored_in(postgres)) == 2
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_autocommit_keeps_a_batch_at_once_with_asyncpg(postgres: Database, newest_postgres_url: str) -> None:
    async def program() -> None:
        connection = await asyncpg.connect(callers.plain(newest_postgres_url))
        await postgres.arun_on(connection, lambda: submit_tasks([a_task(), a_task()]))
        await connection.close()

    asyncio.run(program())
    assert len(stored_in(postgres)) == 2


@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_autocommit_keeps_a_batch_at_once_with_sqlalchemy(database_url: str) -> None:
    database = migrated(database_url)
    driver = "pysqlite" if database.dialect == "sqlite" else "psycopg"
    engine = sqlalchemy.create_engine(callers.sqlalchemy_url(database_url, driver), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        database.run_on(connection, lambda: submit_tasks([a_task(), a_task()]))
    engine.dispose()

    assert len(stored_in(database)) == 2
    database.close()


@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_autocommit_keeps_a_batch_at_once_with_django(database_url: str) -> None:
    database = migrated(database_url)
    with callers.django_database(database_url):
        database.run_on(django.db.connection, lambda: submit_tasks([a_task(), a_task()]))

    assert len(stored_in(database)) == 2
    database.close()


def test_sqlite_without_transactions_is_left_without_one(sqlite: Database, sqlite_url: str) -> None:
    connection = sqlite3.connect(callers.path_of(sqlite_url), isolation_level=None)
    sqlite.run_on(connection, lambda: submit_tasks([a_task(), a_task()]))
    sqlite.run_on(connection, lambda: submit_tasks([a_task()]))

    assert not connection.in_transaction
    assert len(stored_in(sqlite)) == 3
    connection.close()


def test_a_refused_batch_leaves_sqlite_without_a_transaction(sqlite: Database, sqlite_url: str) -> None:
    twice = [a_task(unique_key="k", on_conflict="raise") for _ in range(2)]
    connection = sqlite3.connect(callers.path_of(sqlite_url), isolation_level=None)

    with pytest.raises(UniqueConflict):
        sqlite.run_on(connection, lambda: submit_tasks(twice))

    assert not connection.in_transaction
    assert stored_in(sqlite) == []
    connection.close()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Connection.autocommit came with Python 3.12")
@pytest.mark.parametrize("autocommit", [False, True])
def test_sqlite_with_pythons_new_transactions(sqlite: Database, sqlite_url: str, autocommit: bool) -> None:
    connection = sqlite3.connect(callers.path_of(sqlite_url), autocommit=autocommit)  # type: ignore[call-arg]
    sqlite.run_on(connection, lambda: submit_tasks([a_task(), a_task()]))

    assert len(stored_in(sqlite)) == (2 if autocommit else 0)
    connection.close()
    assert len(stored_in(sqlite)) == (2 if autocommit else 0)


def test_the_callers_rows_may_look_as_they_like(postgres: Database, newest_postgres_url: str) -> None:
    url = callers.plain(newest_postgres_url)
    with psycopg.connect(url, row_factory=scalar_row, cursor_factory=psycopg.RawCursor) as connection:
        new = a_task(unique_key="k")
        answers = [postgres.run_on(connection, lambda: submit_tasks([new]))[0] for _ in range(2)]

        assert answers == [new.id, new.id]
        assert connection.row_factory is scalar_row


def test_a_key_held_is_seen_in_a_pipeline_of_the_caller(postgres: Database, newest_postgres_url: str) -> None:
    with psycopg.connect(libpq_url(newest_postgres_url)) as connection, connection.pipeline():
        answers = [postgres.run_on(connection, lambda: submit_tasks([a_task(unique_key="k")])) for _ in range(2)]

    assert [answer[0].created for answer in answers] == [True, False]
    assert len(stored_in(postgres)) == 1


async def test_a_key_held_is_seen_in_an_awaited_pipeline(postgres: Database, newest_postgres_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(libpq_url(newest_postgres_url)) as connection:
        async with connection.pipeline():
            answers = [await postgres.arun_on(connection, lambda: submit_tasks([a_task(unique_key="k")])) for _ in "ab"]

    assert [answer[0].created for answer in answers] == [True, False]
    assert len(stored_in(postgres)) == 1


def test_the_callers_sqlite_rows_may_look_as_they_like(sqlite: Database, sqlite_url: str) -> None:
    connection = sqlite3.connect(callers.path_of(sqlite_url))
    connection.row_factory = lambda cursor, row: {column[0]: None for column in cursor.description}
    connection.text_factory = bytes
    first, second = a_task(unique_key="k"), a_task(unique_key="k")

    answers = [sqlite.run_on(connection, lambda new=new: submit_tasks([new]))[0] for new in (first, second)]

    assert answers == [first.id, first.id]
    assert connection.text_factory is bytes
    connection.close()


def test_the_callers_aiosqlite_rows_may_look_as_they_like(sqlite: Database, sqlite_url: str) -> None:
    async def program() -> None:
        async with aiosqlite.connect(callers.path_of(sqlite_url)) as connection:
            connection.row_factory = lambda cursor, row: None
            await sqlite.arun_on(connection, lambda: submit_tasks([a_task()]))
            await connection.commit()

    asyncio.run(program())
    assert len(stored_in(sqlite)) == 1


def test_the_callers_asyncpg_codecs_do_not_matter(postgres: Database, newest_postgres_url: str) -> None:
    async def program() -> None:
        connection = await asyncpg.connect(callers.plain(newest_postgres_url))
        for kind in ("jsonb", "uuid", "timestamptz"):
            await connection.set_type_codec(kind, schema="pg_catalog", encoder=repr, decoder=str)
        await postgres.arun_on(connection, lambda: submit_tasks([a_task(kwargs={"n": 1})]))
        await connection.close()

    asyncio.run(program())
    assert [task.kwargs for task in stored_in(postgres)] == [{"n": 1}]


def test_django_logs_our_statements_as_its_own(sqlite: Database, sqlite_url: str) -> None:
    with callers.django_database(sqlite_url):
        django.db.connection.force_debug_cursor = True
        sqlite.run_on(django.db.connection, lambda: submit_tasks([a_task()]))
        logged = django.db.connection.queries

    assert "INSERT INTO tasks" in logged[-1]["sql"]
    assert len(stored_in(sqlite)) == 1


@pytest.mark.parametrize("kind", callers.POSTGRES)
def test_a_connection_cut_by_the_server_is_unavailable(postgres: Database, newest_postgres_url: str, kind: str) -> None:
    with callers.POSTGRES[kind](newest_postgres_url) as caller:
        caller.begin()
        caller.submit(postgres, a_task())
        with psycopg.connect(libpq_url(newest_postgres_url)) as server:
            server.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks"
                " WHERE relation = 'tasks'::regclass AND pid <> pg_backend_pid()"
            )
        with pytest.raises(DatabaseUnavailable, match="PostgreSQL cannot be reached or went away"):
            caller.submit(postgres, a_task())


def test_a_writer_beside_the_queue_makes_its_batches_busy_too(sqlite_url: str) -> None:
    database = migrated(Config(sqlite_url, busy_timeout_seconds=0.05))
    beside = sqlite3.connect(callers.path_of(sqlite_url))
    database.run_on(beside, lambda: submit_tasks([a_task()]))

    with pytest.raises(DatabaseBusy, match="another program is writing"):
        database.run(lambda: submit_tasks([a_task(), a_task()]))

    beside.close()
    database.close()


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_first_use_inside_a_transaction_says_what_is_in_the_way(sqlite_url: str, journal: str) -> None:
    database = connect(Config(sqlite_url, busy_timeout_seconds=0.05))
    beside = sqlite3.connect(callers.path_of(sqlite_url))
    beside.execute(f"PRAGMA journal_mode = {journal}")
    beside.execute("CREATE TABLE app (id)")
    beside.execute("INSERT INTO app VALUES (1)")

    with pytest.raises(DatabaseBusy, match="run `tasklib migrate`, or use the queue once before"):
        database.run_on(beside, lambda: submit_tasks([a_task()]))
    beside.commit()
    database.run_on(beside, lambda: submit_tasks([a_task()]))
    beside.commit()

    assert len(stored_in(database)) == 1
    beside.close()
    database.close()


def test_a_queue_on_sqlite_imports_no_other_driver() -> None:
    program = (
        "import sys, tasklib.storage.enlist; print({'psycopg', 'asyncpg', 'sqlalchemy', 'django'} & {*sys.modules})"
    )

    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "set()\n"


def hide_tables(url: str) -> None:
    if url.startswith("sqlite"):
        connection: Any = sqlite3.connect(callers.path_of(url))
    else:
        connection = psycopg.connect(libpq_url(url))
    connection.execute("ALTER TABLE tasks RENAME TO hidden")
    connection.commit()
    connection.close()


def submit_beside(scene: Scene, new: NewTask) -> list[TaskId]:
    """Submit through the queue itself, committed at once."""
    return scene.database.run(lambda: submit_tasks([new]))


def claim(database: Database) -> list[UUID]:
    """What a worker that knows the tasks would start now."""
    who = Registration(uuid4(), "w1", "here", 1, timeout_seconds=30, concurrency=1, names=("mail",))
    database.run(lambda: register_worker(who))
    lease = {"instance": who.instance, "worker_id": who.worker_id, "names": who.names, "lease_seconds": 60}
    claimed = database.run(lambda: claim_tasks(Claim(**lease, limit=10, held=())))
    return [UUID(task.id) for task in claimed.tasks]
