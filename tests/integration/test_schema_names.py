"""PostgreSQL only: the schema a queue lives in, the roles that may use it, and its neighbours."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from tasklib import Config, PermissionDenied, SchemaError, SchemaOutdated, StorageError, TaskQueue
from tasklib.core.lifecycle import TERMINAL, Phase
from tasklib.storage.operations import workers
from tests.fixtures.backends import libpq_url
from tests.fixtures.queues import open_queue
from tests.fixtures.waiting import PATIENCE
from tests.integration.test_schema import with_future

pytestmark = pytest.mark.new_schema  # what makes tables is tested here

ODD = 'My "odd" schema; --é %s {schema} {channel} $1 :name'


@pytest.fixture
def admin(newest_postgres_url: str) -> Iterator[psycopg.Connection]:
    """A superuser's connection to the test's schema."""
    with psycopg.connect(libpq_url(newest_postgres_url), autocommit=True) as connection:
        yield connection


@pytest.fixture
def odd_schema(admin: psycopg.Connection) -> Iterator[str]:
    yield ODD
    admin.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(ODD)))


@pytest.fixture
def role(admin: psycopg.Connection) -> Iterator[str]:
    """A role that may log in and nothing else."""
    name = f"plain_{admin.info.backend_pid}"
    admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
    yield name
    admin.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
    admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def without_schema(url: str) -> str:
    return urlunsplit(urlsplit(url)._replace(query=""))


def as_role(url: str, role: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port}"))


def grant_use(admin: psycopg.Connection, role: str) -> None:
    """What the documentation tells an administrator to grant."""
    schema = admin.execute("SELECT current_schema").fetchone()[0]
    for grant in (
        "GRANT USAGE ON SCHEMA {schema} TO {role}",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
    ):
        admin.execute(sql.SQL(grant).format(schema=sql.Identifier(schema), role=sql.Identifier(role)))


@pytest.mark.parametrize("way", ["url", "config"])
def test_a_schema_whose_name_needs_quotes_does_everything(newest_postgres_url: str, odd_schema: str, way: str):
    url = without_schema(newest_postgres_url)
    chosen = {"db_schema": odd_schema} if way == "config" else {}
    if way == "url":
        url += f"?schema={quote(odd_schema, safe='')}"

    with open_queue(url, **chosen) as queue:
        ended = {phase: queue.task_in(phase).id for phase in Phase if phase is not Phase.PENDING}
        queue.pause("other")
        for found in (queue.list(), queue.workers(), queue.pauses()):
            assert found
        assert queue.count(state="failed") == 2
        assert queue.retry(ended[Phase.BURIED]).attempts == 0
        assert queue.delete(ended[Phase.COMPLETED])
        assert queue.wait(ended[Phase.FAILED], timeout=180).id == ended[Phase.FAILED]
        queue.advance(3600)
        assert queue.cleanup(older_than=1, state=["failed", "cancelled"]) == 2


def test_the_tables_are_in_the_chosen_schema_and_nowhere_else(
    newest_postgres_url: str, odd_schema: str, admin: psycopg.Connection
):
    with TaskQueue(Config(database_url=without_schema(newest_postgres_url), db_schema=odd_schema)) as queue:
        queue.enqueue("job")

    found = admin.execute("SELECT schemaname FROM pg_tables WHERE tablename = 'tasklib_migrations'").fetchall()
    assert (odd_schema,) in found
    assert ("public",) not in found


def test_without_a_choice_the_search_path_decides(newest_postgres_url: str, admin: psycopg.Connection):
    with TaskQueue(libpq_url(newest_postgres_url)) as queue:
        queue.enqueue("job")

    assert admin.execute("SELECT count(*) FROM tasks").fetchone() == (1,)


def test_a_search_path_that_names_nothing_is_a_clear_error(newest_postgres_url: str):
    url = without_schema(newest_postgres_url) + "?options=-csearch_path%3Dno_such_schema"

    with TaskQueue(url) as queue, pytest.raises(SchemaError, match=r"search_path.*\?schema="):
        queue.count()


def test_a_role_without_rights_to_create_works_on_a_current_schema(
    newest_postgres_url: str, admin: psycopg.Connection, role: str
):
    TaskQueue(newest_postgres_url).migrate()
    grant_use(admin, role)

    with open_queue(as_role(newest_postgres_url, role)) as queue:
        for phase in Phase:
            queue.task_in(phase, str(phase))
        queue.pause()
        assert queue.resume()
        assert queue.cancel_many() == 3
        # the running one was only asked to stop
        assert queue.delete_many(state=[phase.state for phase in TERMINAL]) == len(Phase) - 1


def test_a_role_without_rights_to_create_is_told_what_an_outdated_schema_needs(
    newest_postgres_url: str, admin: psycopg.Connection, role: str, monkeypatch: pytest.MonkeyPatch
):
    TaskQueue(newest_postgres_url).migrate()
    grant_use(admin, role)
    with_future(monkeypatch)

    with TaskQueue(as_role(newest_postgres_url, role)) as queue:
        with pytest.raises(SchemaOutdated, match=r"9999_future.*tasklib migrate"):
            queue.enqueue("job")
    assert admin.execute("SELECT count(*) FROM tasks").fetchone() == (0,)


def test_a_role_without_rights_to_create_is_told_so_on_an_empty_schema(
    newest_postgres_url: str, admin: psycopg.Connection, role: str
):
    with TaskQueue(as_role(newest_postgres_url, role)) as queue:
        with pytest.raises(StorageError, match=r"permission denied|may not"):
            queue.enqueue("job")
    assert admin.execute("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema").fetchone() == (0,)


def test_a_role_without_rights_to_the_tables_is_told_so(newest_postgres_url: str, admin: psycopg.Connection, role: str):
    TaskQueue(newest_postgres_url).migrate()
    grant_use(admin, role)
    admin.execute(sql.SQL("REVOKE INSERT ON tasks FROM {}").format(sql.Identifier(role)))

    with TaskQueue(as_role(newest_postgres_url, role)) as queue:
        with pytest.raises(PermissionDenied, match="permission denied for table tasks"):
            queue.enqueue("job")
        assert queue.count() == 0


def test_two_schemas_in_one_database_do_not_know_each_other(newest_postgres_url: str, odd_schema: str):
    other_url = f"{without_schema(newest_postgres_url)}?schema={quote(odd_schema, safe='')}"
    with open_queue(newest_postgres_url) as one, open_queue(other_url) as other:
        first, second = one.enqueue("job", unique_key="k"), other.enqueue("job", unique_key="k")
        one.pause()
        worker = one.worker()

        assert second.created
        assert [task.id for task in one.list()] == [first]
        assert (one.get(second), other.is_paused(), other.workers()) == (None, False, [])
        assert other.worker().claim_ids() == [second]
        assert worker.claim_ids() == []


def test_two_schemas_in_one_database_do_not_hear_each_other(newest_postgres_url: str, odd_schema: str):
    other_url = f"{without_schema(newest_postgres_url)}?schema={quote(odd_schema, safe='')}"
    with open_queue(newest_postgres_url) as one, open_queue(other_url) as other:
        heard: list[str] = []
        own = threading.Event()

        def listen(event: str) -> None:
            heard.append(event)
            if event.startswith("new"):
                own.set()

        for queue in (one, other):
            instance = queue.worker().instance
            queue.do(lambda instance=instance: workers.declare_idle(instance, ["job"], 3600))
        stop = one.plain.database.subscribe(listen)
        other.enqueue("job")
        one.enqueue("job")  # notifications arrive in the order of the commits: the other's would be here by now
        assert own.wait(PATIENCE)
        stop()

        assert sum(event.startswith("new") for event in heard) == 1


PLAIN_COLUMNS = """
    id name state started_at created_at updated_at expires_at timeout_seconds progress progress_message priority tags
    error worker_id instance host pid heartbeat_at concurrency paused_at paused_by reason refilled_at key next_run_at
    last_run_at last_task_id role last_used_at revoked_at at seq actor action target detail request_id answer outcome
    count due delayed retrying running only_row version applied_at
"""
# Columns whose names say everything; in one table or another some have a comment all the same.


def test_every_table_and_every_column_that_does_not_explain_itself_has_a_comment(
    newest_postgres_url: str, admin: psycopg.Connection
):
    TaskQueue(newest_postgres_url).migrate()

    without = admin.execute(
        "SELECT c.relname, a.attname FROM pg_class AS c"
        " LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        " WHERE c.relnamespace = current_schema::regnamespace AND c.relkind = 'r' AND ("
        "obj_description(c.oid) IS NULL OR col_description(c.oid, a.attnum) IS NULL AND NOT a.attname = ANY (%s))",
        (PLAIN_COLUMNS.split(),),
    ).fetchall()
    assert without == []
