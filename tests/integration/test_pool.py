"""Connections of an event loop's pool."""

from __future__ import annotations

from tasklib import TaskQueue


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
