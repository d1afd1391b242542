"""Every test here runs on SQLite in memory, blocking, and on the newest PostgreSQL, awaiting.

With `MATRIX=full`, or the marker `full_matrix`, it runs on each of four databases in both forms. Those on PostgreSQL
share one schema per version and process, emptied before each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

from tasklib import TaskQueue
from tests.fixtures.backends import Databases, is_short, libpq_url
from tests.fixtures.queues import FORMS, Face, Form, Instance, open_queue


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen_by_the_test = any(mark.args[0] == "form" for mark in metafunc.definition.iter_markers("parametrize"))
    if "form" in metafunc.fixturenames and not chosen_by_the_test and not is_short(metafunc):
        metafunc.parametrize("form", FORMS, indirect=True)


@pytest.fixture
def form(request: pytest.FixtureRequest, database_url: str) -> Form:
    """The one that the test or the matrix chose, else one for each kind of database."""
    return getattr(request, "param", "blocking" if database_url.startswith("sqlite") else "awaiting")


@pytest.fixture
def queue(database_url: str, form: Form) -> Iterator[Face]:
    """A queue whose clock stands at noon until the test moves it."""
    with open_queue(database_url, form) as face:
        yield face


@pytest.fixture
def worker(queue: Face) -> Instance:
    """A worker instance that knows tasks named `job`."""
    return queue.worker()


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> str:
    match request.param:
        case "sqlite-memory":
            return "sqlite:///:memory:"
        case "sqlite-file":
            return request.getfixturevalue("sqlite_url")
        case version:
            return request.getfixturevalue("_schemas").empty(version)


EMPTY = """
DO $$
DECLARE
    name text;
BEGIN
    SET LOCAL session_replication_role = replica; -- no trigger counts what is deleted
    FOR name IN SELECT tablename FROM pg_tables
        WHERE schemaname = current_schema AND tablename <> 'tasklib_migrations' LOOP
        EXECUTE format('DELETE FROM %I', name);
    END LOOP;
    INSERT INTO tasklib_stats_position DEFAULT VALUES; -- the row that a new database has
    PERFORM setval(format('%I.%I', schemaname, sequencename), start_value, false)
    FROM pg_sequences WHERE schemaname = current_schema;
END
$$
"""


class Schemas:
    """One schema per PostgreSQL version, used by one test after the other."""

    def __init__(self, databases: Databases, stack: ExitStack) -> None:
        self._databases = databases
        self._stack = stack
        self._made: dict[int, tuple[str, psycopg.Connection]] = {}

    def empty(self, version: int) -> str:
        """The URL of the schema, with every table empty."""
        if version not in self._made:
            url = self._stack.enter_context(self._databases.schema(version))
            with TaskQueue(url) as queue:
                queue.migrate()  # not every test uses it, and the first may be one that does not
            connection = self._stack.enter_context(psycopg.connect(libpq_url(url), autocommit=True))
            connection.execute("SET lock_timeout = '30s'")  # a test that left a transaction open fails the next
            self._made[version] = url, connection
            return url
        url, connection = self._made[version]
        # Ten times faster than TRUNCATE, which makes new files for every table and index.
        connection.execute(EMPTY)
        return url


@pytest.fixture(scope="session")
def _schemas(_postgres: Databases) -> Iterator[Schemas]:
    with ExitStack() as stack:
        yield Schemas(_postgres, stack)
