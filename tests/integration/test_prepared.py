"""Statements that our own connections send without psycopg's cursors."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from tasklib import TaskQueue
from tasklib.errors import StorageError
from tasklib.storage.dialects.postgres import PostgresDialect
from tasklib.storage.operations.tasks import get_task
from tasklib.storage.statement import Operation, Statement
from tests.fixtures.backends import libpq_url

LONGEST_NAME = 63 - len("tasklib_0123456789abcdef_")
"""PostgreSQL tells prepared statements apart by their first 63 bytes."""

LATIN = f"latin_{uuid4().hex}"


def test_the_server_finds_the_type_of_every_parameter(postgres_url: str) -> None:
    with TaskQueue(postgres_url) as queue:
        queue.count()
        dialect = PostgresDialect(queue.config.db_schema or "public")
    with psycopg.connect(libpq_url(postgres_url), autocommit=True) as connection:
        for name, (text, _) in dialect.numbered.items():
            assert len(name) <= LONGEST_NAME
            answer = connection.pgconn.prepare(name.encode(), text)
            assert not answer.error_message, f"{name}: {answer.error_message.decode()}"


def test_a_statement_is_prepared_from_its_second_use_on(newest_postgres_url: str) -> None:
    with TaskQueue(newest_postgres_url) as queue:
        task_id = queue.enqueue("job")

        def prepared() -> list[str]:
            with queue.database._pools.blocking().connection() as connection:  # type: ignore[attr-defined]
                found = connection.execute("SELECT name FROM pg_prepared_statements").fetchall()
                return [name for (name,) in found if name.endswith("_get_task")]

        queue.get(task_id)
        assert prepared() == []
        first, second = queue.get(task_id), queue.get(task_id)
        assert len(prepared()) == 1
        assert first == second is not None


def test_text_that_postgres_cannot_hold_is_refused_and_not_cut(newest_postgres_url: str) -> None:
    with TaskQueue(newest_postgres_url) as queue:

        def watch() -> Operation[None]:
            yield Statement("watch_task", {"id": "not\0an id"})

        for _ in range(3):  # plain, while it is prepared, and prepared
            with pytest.raises(StorageError, match="NUL"):
                queue.database.run(watch)


def test_an_error_leaves_the_connection_usable(newest_postgres_url: str) -> None:
    with TaskQueue(newest_postgres_url) as queue:
        task_id = queue.enqueue("job")

        def watch() -> Operation[None]:
            yield Statement("watch_task", {"id": "no id"})

        for _ in range(3):
            with pytest.raises(StorageError, match="no id"):
                queue.database.run(watch)
            assert queue.database.run(lambda: get_task(task_id)) is not None


@pytest.fixture
def latin_url(newest_postgres_url: str) -> Iterator[str]:
    """A database whose text is not UTF-8."""
    name = sql.Identifier(LATIN)
    with psycopg.connect(libpq_url(newest_postgres_url), autocommit=True) as connection:
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name)
        connection.execute(drop)
        connection.execute(sql.SQL("CREATE DATABASE {} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0").format(name))
        yield urlunsplit(urlsplit(newest_postgres_url)._replace(path=f"/{LATIN}", query=""))
        connection.execute(drop)


def test_a_database_of_another_encoding_is_sent_what_it_can_read(latin_url: str) -> None:
    with TaskQueue(latin_url) as queue:
        for text in ("naïve", "crème", "brûlée"):
            task_id = queue.enqueue("job", {"text": text}, unique_key=text)
            found = queue.get(task_id)
            assert found is not None
            assert (found.kwargs, found.unique_key) == ({"text": text}, text)
