"""Connections of an event loop's pool."""

from __future__ import annotations

import psycopg

from tasklib import TaskQueue
from tasklib.storage.postgres.database import SESSION
from tests.fixtures.backends import libpq_url


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


def test_a_session_that_is_frozen_between_two_statements_is_ended_by_the_server(newest_postgres_url: str) -> None:
    """Whoever waits for its locks waits no longer than that; sessions lent to users end when they say so."""
    with psycopg.connect(libpq_url(newest_postgres_url), autocommit=True) as connection:
        connection.execute(SESSION.encode())
        assert connection.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("30s",)
    with TaskQueue(newest_postgres_url) as queue, queue.database.transaction() as lent:
        assert lent.connection.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("0",)
