"""A worker that is cancelled while it starts leaves nothing behind that others would take for a lost worker."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from tasklib import TaskQueue
from tests.fixtures.backends import libpq_url
from tests.fixtures.waiting import aeventually

WHO_WAITS_FOR = "SELECT pid FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"


@pytest.mark.parametrize("lock", ["tasks IN ACCESS EXCLUSIVE", "tasklib_workers IN SHARE"])
async def test_it_is_not_known_any_more(newest_postgres_url: str, lock: str) -> None:
    address = libpq_url(newest_postgres_url)
    with (
        TaskQueue(newest_postgres_url) as queue,
        psycopg.connect(address) as holding,
        psycopg.connect(address, autocommit=True) as looking,
    ):
        queue.count()  # the tables are there
        holding.execute(f"LOCK TABLE {lock} MODE".encode())
        async with TaskQueue(newest_postgres_url) as starting:
            worker = asyncio.ensure_future(starting.arun(signals=False))
            await aeventually(lambda: looking.execute(WHO_WAITS_FOR, [holding.info.backend_pid]).fetchall())
            worker.cancel()
            holding.rollback()
            with pytest.raises(asyncio.CancelledError):
                await worker
        assert queue.workers() == []
