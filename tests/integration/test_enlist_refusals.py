"""What submit(connection=...) cannot use is a ConfigurationError that says why and what to do."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from typing import Any

import asyncpg
import django.db
import pytest
import sqlalchemy
import sqlalchemy.orm
from django.core.cache import cache

from tasklib.errors import ConfigurationError
from tasklib.storage.database import Database
from tasklib.storage.operations.tasks import submit_tasks
from tests.integration import callers
from tests.integration.callers import a_task, migrated


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


@pytest.mark.parametrize("thing", [object(), "postgresql://localhost", cache], ids=["object", "url", "django-cache"])
def test_what_is_no_connection_is_named_with_what_would_be_one(sqlite: Database, thing: Any) -> None:
    callers.configure_django()
    kind = f"{type(thing).__module__}.{type(thing).__qualname__}"

    with pytest.raises(ConfigurationError, match=rf"{kind}; it takes a psycopg .* sqlite3"):
        sqlite.run_on(thing, lambda: submit_tasks([a_task()]))


def test_an_engine_is_no_connection(sqlite: Database, sqlite_url: str) -> None:
    engine = sqlalchemy.create_engine(callers.sqlalchemy_url(sqlite_url, "pysqlite"))

    with pytest.raises(ConfigurationError, match=r"Engine; it takes .* SQLAlchemy Connection, Session"):
        sqlite.run_on(engine, lambda: submit_tasks([a_task()]))


@pytest.mark.parametrize("kind", [name for name in callers.POSTGRES if "async" in name])
def test_an_asynchronous_connection_asks_for_an_awaiting_call(
    postgres: Database, newest_postgres_url: str, kind: str
) -> None:
    with callers.POSTGRES[kind](newest_postgres_url) as caller:
        with pytest.raises(ConfigurationError, match=r"asynchronous.*asubmit\(\)"):
            postgres.run_on(caller.connection, lambda: submit_tasks([a_task()]))


def test_a_django_connection_asks_for_a_blocking_call(sqlite: Database, sqlite_url: str) -> None:
    with callers.django_database(sqlite_url):
        with pytest.raises(ConfigurationError, match=r"call submit\(\), .* sync_to_async"):
            asyncio.run(sqlite.arun_on(django.db.connection, lambda: submit_tasks([a_task()])))


@pytest.mark.parametrize("kind", callers.SQLITE)
def test_a_sqlite_connection_is_refused_by_a_queue_on_postgresql(
    postgres: Database, sqlite_url: str, kind: str
) -> None:
    with callers.SQLITE[kind](sqlite_url) as caller:
        with pytest.raises(ConfigurationError, match=r"the queue is on postgresql and .* is on sqlite"):
            caller.submit(postgres, a_task())


@pytest.mark.parametrize("kind", callers.POSTGRES)
def test_a_postgresql_connection_is_refused_by_a_queue_on_sqlite(
    sqlite: Database, newest_postgres_url: str, kind: str
) -> None:
    with callers.POSTGRES[kind](newest_postgres_url) as caller:
        with pytest.raises(ConfigurationError, match=r"the queue is on sqlite and .* is on postgresql"):
            caller.submit(sqlite, a_task())


def test_an_unknown_driver_of_sqlalchemy_is_named(sqlite: Database) -> None:
    engine = sqlalchemy.create_engine("sqlite+pysqlcipher://", module=sqlite3)

    with pytest.raises(ConfigurationError, match=r"sqlite\+pysqlcipher; it supports postgresql\+psycopg, .*aiosqlite"):
        sqlite.run_on(sqlalchemy.orm.Session(engine), lambda: submit_tasks([a_task()]))


def test_a_session_without_an_engine_says_what_to_pass(postgres: Database) -> None:
    with pytest.raises(ConfigurationError, match=r"pass session\.connection\(bind_arguments="):
        postgres.run_on(sqlalchemy.orm.Session(), lambda: submit_tasks([a_task()]))


@pytest.mark.parametrize("kind", [name for name in callers.POSTGRES if name.endswith(("psycopg", "connection"))])
def test_a_closed_connection_is_told_as_such(postgres: Database, newest_postgres_url: str, kind: str) -> None:
    with callers.POSTGRES[kind](newest_postgres_url) as caller:
        caller.close()
        with pytest.raises(ConfigurationError, match="is closed; pass an open one"):
            caller.submit(postgres, a_task())


@pytest.mark.parametrize(
    "kind", [name for name in callers.SQLITE if name.endswith(("sqlite3", "sqlite", "connection"))]
)
def test_a_closed_sqlite_connection_is_told_as_such(sqlite: Database, sqlite_url: str, kind: str) -> None:
    with callers.SQLITE[kind](sqlite_url) as caller:
        caller.close()
        with pytest.raises(ConfigurationError, match="is closed; pass an open one"):
            caller.submit(sqlite, a_task())


def test_a_connection_given_back_to_its_pool_is_closed(postgres: Database, newest_postgres_url: str) -> None:
    async def program() -> None:
        async with asyncpg.create_pool(callers.plain(newest_postgres_url), min_size=1) as pool:
            async with pool.acquire() as connection:
                pass
            await postgres.arun_on(connection, lambda: submit_tasks([a_task()]))

    with pytest.raises(ConfigurationError, match="is closed; pass an open one"):
        asyncio.run(program())
