"""Connections of an event loop's pool."""

from __future__ import annotations

import asyncio
import inspect
import tomllib
from collections import deque
from importlib.metadata import version
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from packaging.requirements import Requirement
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from tasklib import TaskContext, TaskQueue
from tasklib.errors import DatabaseUnavailable
from tasklib.storage.postgres.session import SESSION
from tests.fixtures.backends import libpq_url
from tools.postgres.starting import free_port
from tools.problems import ROOT


async def test_the_parts_of_psycopgs_pool_that_ours_replaces_are_as_they_were() -> None:
    """If this fails, storage/postgres/lending.py must be fitted to this version before it is allowed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["optional-dependencies"]["postgres"]
    (bounds,) = (each for each in map(Requirement, wanted) if each.name == "psycopg-pool")
    installed = version("psycopg-pool")
    changed = f"psycopg-pool {installed} has changed what storage/postgres/lending.py replaces"

    assert installed in bounds.specifier
    assert "3.4" not in bounds.specifier, "a version whose private parts nobody has looked at is allowed"
    assert type(vars(AsyncConnectionPool("", open=False)).get("_pool")) is deque, f"{changed}: the waiting connections"
    assert "self._pool.popleft()" in inspect.getsource(AsyncConnectionPool), f"{changed}: who is lent first"
    for pool in (AsyncConnectionPool, ConnectionPool):
        lending, returning = inspect.getsource(pool._getconn_unchecked), inspect.getsource(pool._return_connection)
        assert "conn._pool = self" in lending, f"{changed}: what a lent connection knows"
        assert "self._waiting.popleft()" in inspect.getsource(pool._add_to_pool), f"{changed}: who waits for one"
        assert "conn._created_at <= self._drained_at or conn._expire_at" in returning, f"{changed}: when one is too old"
    assert [*inspect.signature(AsyncConnectionPool.worker).parameters] == ["q"], f"{changed}: the pool's workers"
    assert "await q.get()" in inspect.getsource(AsyncConnectionPool.worker), f"{changed}: how workers get their chores"


async def test_what_came_back_last_is_lent_again(newest_postgres_url: str) -> None:
    async with TaskQueue(newest_postgres_url) as queue:

        async def backend() -> int:
            async with queue.database.atransaction() as lent:
                pid: int = lent.connection.info.backend_pid
                return pid

        async with queue.database.atransaction() as other:
            used = await backend()
            assert other.connection.info.backend_pid != used
        last = await backend()

        assert {await backend() for _ in range(5)} == {last}


def test_a_host_of_several_that_does_not_answer_is_passed_over(newest_postgres_url: str) -> None:
    parts = urlsplit(newest_postgres_url)
    netloc = f"postgres@127.0.0.1:{free_port()},127.0.0.1:{parts.port}"
    query = parts.query + "&target_session_attrs=read-write"
    with TaskQueue(urlunsplit(parts._replace(scheme="postgresql+psycopg", netloc=netloc, query=query))) as queue:
        task_id = queue.enqueue("job")
        assert queue.get(task_id).state == "pending"


@pytest.mark.parametrize("place", ["me:hun%zzter@one,two/app", "one,two/app?password=hun%zzter"])
def test_a_url_that_libpq_refuses_is_shown_without_its_password(place: str) -> None:
    with TaskQueue(f"postgresql://{place}") as queue, pytest.raises(DatabaseUnavailable, match="percent") as refused:
        queue.enqueue("job")
    assert "hun" not in str(refused.value)


def test_a_session_that_is_frozen_between_two_statements_is_ended_by_the_server(newest_postgres_url: str) -> None:
    """Whoever waits for its locks waits no longer than that; sessions lent to users end when they say so."""
    with psycopg.connect(libpq_url(newest_postgres_url), autocommit=True) as connection:
        connection.execute(SESSION)
        assert connection.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("30s",)
    with TaskQueue(newest_postgres_url) as queue, queue.database.transaction() as lent:
        assert lent.connection.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("0",)


async def test_what_server_and_environment_choose_changes_nothing(
    newest_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Psycopg reads times in one style only, and fails on characters that an encoding does not have."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with TaskQueue(f"{newest_postgres_url}&options=-cDateStyle%3DGerman") as queue:

        @queue.task(transactional=True)
        async def job(ctx: TaskContext, text: str) -> str:
            first, again = [await job.options(unique_key="k", delay_seconds=60).asubmit(text) for _ in range(2)]
            return f"{text} {first == again}"

        task_id = job.submit(text="€")
        await queue.aprocess_batch()

        assert (await queue.await_(task_id)).result == {"value": "€ True"}
        assert [task.kwargs for task in queue.list()] == [{"text": "€"}] * 2
        await queue.aclose()


async def test_one_after_the_other_needs_one_connection(newest_postgres_url: str) -> None:
    with TaskQueue(newest_postgres_url) as queue:
        queue.enqueue("job")
        queue.enqueue("job")
        assert queue.database._pools.blocking().get_stats()["connections_num"] == 1
    async with TaskQueue(newest_postgres_url) as queue:
        await queue.aenqueue("job")
        await queue.aenqueue("job")
        assert (await queue.database._pools.of_loop()).get_stats()["connections_num"] == 1


def test_no_connection_outlives_the_event_loop_it_was_opened_on(newest_postgres_url: str) -> None:
    with TaskQueue(newest_postgres_url) as queue:
        opened: list[AsyncConnection] = []

        async def use() -> None:
            await queue.aenqueue("job")
            async with queue.database.atransaction() as lent:
                opened.append(lent.connection)
            opened.extend((await queue.database._pools.of_loop())._pool)

        asyncio.run(use())
        assert [connection.closed for connection in opened] == [True, True]
