"""A pooler in transaction mode that nobody declared: it is found whenever a connection is opened, and does no harm.

Ours lends its sessions at random; `test_pgbouncer.py` has PgBouncer itself, where it is installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tasklib import Config, TaskContext, TaskQueue
from tests.chaos.history import History
from tests.fixtures.backends import libpq_url
from tests.fixtures.pooler import Pooler, direct
from tests.fixtures.waiting import eventually
from tests.programs.processes import working

SESSIONS = 3
LEFT_BEHIND = """
    SELECT name FROM pg_prepared_statements
    UNION ALL SELECT name FROM pg_settings WHERE source = 'session' AND name <> 'application_name'
"""
NOTE_SETTINGS = """
    CREATE TABLE seen (what text, settings text);
    CREATE FUNCTION note_settings() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE format('INSERT INTO %I.seen VALUES ($1, $2)', tg_table_schema) USING tg_op,
            concat_ws(' ', current_setting('jit'), current_setting('enable_seqscan'),
                      current_setting('idle_in_transaction_session_timeout'), current_setting('transaction_isolation'));
        RETURN NULL;
    END $$;
    CREATE TRIGGER note_settings AFTER INSERT OR UPDATE ON tasks EXECUTE FUNCTION note_settings()
"""


@pytest.fixture
def server(newest_postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the server itself, with the tables in place."""
    with TaskQueue(newest_postgres_url) as queue:
        queue.migrate()
    with psycopg.connect(libpq_url(newest_postgres_url), autocommit=True) as connection:
        yield connection


def left_behind(pooler: Pooler) -> set[str]:
    """What other programs find in the pooler's sessions."""
    with psycopg.connect(direct(pooler.url), autocommit=True, prepare_threshold=None) as other:
        return {row[0] for _ in range(10 * SESSIONS) for row in other.execute(LEFT_BEHIND)}


def work_off(queue: TaskQueue, tasks: int) -> None:
    """Run transactional and plain tasks beside lists and submissions."""

    @queue.task(transactional=True)
    def effect(ctx: TaskContext, n: int) -> None:
        table = sql.Identifier(queue.config.db_schema or "public", "chaos_effects")
        ctx.connection.execute(sql.SQL("INSERT INTO {} VALUES (%s)").format(table), (ctx.task.id,))

    @queue.task
    async def plain(n: int) -> int:
        return n

    queue.set_concurrency_limit(50, "plain")
    with working(queue, concurrency=4):
        for n in range(tasks):
            effect.submit(n)
            plain.submit(n)
            queue.list(limit=5)
        eventually(lambda: queue.count(state="completed") == 2 * tasks, 30 + tasks)


@pytest.mark.parametrize("declared", [None, True, False])
@pytest.mark.parametrize(
    "tasks", [20, pytest.param(1000, marks=[pytest.mark.chaos, pytest.mark.timeout(600)])], ids=["short", "long"]
)
def test_every_effect_happens_once_and_nothing_reaches_other_programs(
    server: psycopg.Connection[Any], history: History, newest_postgres_url: str, declared: bool | None, tasks: int
):
    """That each effect belongs to one completion is what every history is judged by."""
    with Pooler(newest_postgres_url, SESSIONS, own_keys=True) as pooler:
        config = Config(
            database_url=pooler.url, prepare_statements=declared, listen_url=direct(newest_postgres_url), pool_size=4
        )
        with TaskQueue(config) as queue:
            work_off(queue, tasks)

        assert len(history.effects()) == tasks
        assert server.execute("SELECT count(*) FROM tasks WHERE error IS NOT NULL").fetchone() == (0,)
        assert left_behind(pooler) == set()


def test_a_pooler_put_in_front_later_is_found_when_connections_are_made_anew(
    server: psycopg.Connection[Any], newest_postgres_url: str, caplog: pytest.LogCaptureFixture
):
    def use(queue: TaskQueue) -> None:
        for _ in range(5):
            queue.enqueue("job")
            queue.count(name="job")

    with Pooler(newest_postgres_url, SESSIONS, own_keys=True, in_front=False) as pooler:
        with TaskQueue(Config(database_url=pooler.url, pool_size=1)) as queue:
            use(queue)
            assert "is a pooler" not in caplog.text
            pooler.put_in_front()
            use(queue)

            assert caplog.text.count("is a pooler") == 1
            assert left_behind(pooler) == set()
            assert queue.count() == 10


@pytest.mark.parametrize("declared", [None, False])
def test_the_queues_settings_hold_in_every_transaction_of_a_session_that_is_not_its_own(
    server: psycopg.Connection[Any], newest_postgres_url: str, declared: bool | None
):
    """Without them the server compiles the claim anew each time, for seconds."""
    server.execute(NOTE_SETTINGS)
    server.execute("SET enable_seqscan = off")
    with Pooler(newest_postgres_url, SESSIONS, own_keys=True) as pooler:
        with TaskQueue(Config(database_url=pooler.url, prepare_statements=declared)) as queue:
            queue.register_handler("job", lambda payload: None)
            task_id = queue.enqueue("job")
            queue.process_batch()
            queue.retry(task_id)

    seen = server.execute("SELECT DISTINCT what, settings FROM seen").fetchall()
    assert sorted(seen) == [(what, "off off 30s read committed") for what in ("INSERT", "UPDATE")]


def test_two_clients_of_one_session_never_run_each_others_statements(server: psycopg.Connection[Any], pooled_url: str):
    """A pooler that passes on the server's greeting cannot be told from the server by a client with one connection."""
    one, other = (TaskQueue(Config(database_url=pooled_url, pool_size=1)) for _ in range(2))
    with one, other:
        for _ in range(4):
            one.enqueue("one")
            assert other.count(name="one") == one.count(name="one")
            other.add_schedule("s", task="other", every=3600)
            assert [each.name for each in one.schedules()] == ["s"]
            assert {task.name for task in other.list()} == {"one"}


def test_the_connection_that_listens_prepares_nothing(
    server: psycopg.Connection[Any], pooled_url: str, monkeypatch: pytest.MonkeyPatch
):
    for name in ("CHECK_SECONDS", "WAKE_SECONDS"):
        monkeypatch.setattr(f"tasklib.storage.postgres.listener.{name}", 0.01)
    with TaskQueue(Config(database_url=pooled_url, prepare_statements=False)) as queue:
        task_id = queue.enqueue("job")
        with pytest.raises(TimeoutError):
            queue.wait(task_id, timeout=1)
        with psycopg.connect(direct(pooled_url), autocommit=True, prepare_threshold=None) as other:
            assert other.execute("SELECT statement FROM pg_prepared_statements").fetchall() == []
