"""A long submission stores rows while the next are made ready, and leaves nothing behind when it is given up."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from tasklib import TaskId, TaskQueue
from tasklib.errors import DatabaseBusy
from tasklib.submission import CHUNK
from tests.fixtures.backends import libpq_url


async def count(n: int) -> None:
    """Does nothing."""


@pytest.mark.backends("sqlite-file", "postgres")
async def test_one_that_is_given_up_leaves_nothing_on_its_way(database_url: str) -> None:
    async with TaskQueue(database_url) as queue:
        before = asyncio.all_tasks()
        halfway = asyncio.Event()

        async def rows() -> AsyncIterator[dict[str, int]]:
            for n in range(CHUNK):
                yield {"n": n}
            halfway.set()
            await asyncio.Event().wait()

        submitting = asyncio.ensure_future(queue.task(count).asubmit_many(rows()))
        await halfway.wait()
        submitting.cancel()
        await asyncio.wait([submitting])
        assert submitting.cancelled()
        assert {task for task in asyncio.all_tasks() - before if "asubmit_new" in repr(task)} == set()
        assert await queue.acount() in (0, CHUNK)


@pytest.mark.backends("sqlite-file", "postgres")
async def test_an_error_of_the_source_leaves_every_full_chunk_before_it_stored(database_url: str) -> None:
    async with TaskQueue(database_url) as queue:

        def rows() -> Iterator[dict[str, int]]:
            for n in range(CHUNK):
                yield {"n": n}
            raise LookupError("the file ends here")

        with pytest.raises(LookupError, match="the file ends here"):
            await queue.task(count).asubmit_many(rows())
        assert await queue.acount() == CHUNK


@pytest.mark.backends("sqlite-memory")
async def test_the_error_of_the_source_is_told_and_not_that_of_the_database(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with TaskQueue(database_url) as queue:

        async def fail(new: object, connection: object = None) -> list[TaskId]:
            raise DatabaseBusy("the chunk cannot be stored")

        def rows() -> Iterator[dict[str, int]]:
            for n in range(CHUNK):
                yield {"n": n}
            raise LookupError("the file ends here")

        unheard = list[dict[str, object]]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
        monkeypatch.setattr(queue, "asubmit_new", fail)
        with pytest.raises(LookupError, match="the file ends here"):
            await queue.task(count).asubmit_many(rows())
        gc.collect()
        assert unheard == []


@pytest.mark.backends("postgres")
async def test_rows_may_be_read_from_the_connection_they_are_submitted_on(database_url: str) -> None:
    async with (
        TaskQueue(database_url) as queue,
        await psycopg.AsyncConnection.connect(libpq_url(database_url)) as connection,
    ):

        async def rows() -> AsyncIterator[dict[str, int]]:
            for start in range(0, 2 * CHUNK, CHUNK):
                cursor = await connection.execute(
                    "SELECT generate_series(%s::int, %s::int)", (start, start + CHUNK - 1)
                )
                for (n,) in await cursor.fetchall():
                    yield {"n": n}

        ids = await queue.task(count).options(connection=connection).asubmit_many(rows(), keep_ids=False)
        assert ids.total == 2 * CHUNK
        assert await queue.acount() == 0
        await connection.commit()
        assert await queue.acount() == 2 * CHUNK
