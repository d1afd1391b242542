"""Concurrent submissions of one event loop travel together, and each caller hears only of its own."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import psycopg
import pytest

from tasklib import StorageError, TaskQueue, UniqueConflict
from tests.fixtures.backends import libpq_url
from tests.fixtures.waiting import aeventually

MANY = 100
ON_DISK = pytest.mark.backends("sqlite-file", "postgres")


@pytest.fixture
async def queue(database_url: str) -> AsyncIterator[TaskQueue]:
    async with TaskQueue(database_url) as queue:
        await queue.acount()
        yield queue


@pytest.fixture
def raw(database_url: str, queue: TaskQueue) -> Iterator[Any]:
    """Another program's connection; in memory, where there is none, the queue's own."""
    if database_url == "sqlite:///:memory:":
        yield queue.database._opened()  # type: ignore[attr-defined]
        return
    if database_url.startswith("sqlite"):
        connection: Any = sqlite3.connect(database_url.removeprefix("sqlite:///"), isolation_level=None)
    else:
        connection = psycopg.connect(libpq_url(database_url), autocommit=True)
    yield connection
    connection.close()


@pytest.fixture
def statements(queue: TaskQueue, raw: Any) -> Callable[[], int]:
    """How many INSERT statements into the table there were, as the database counts them."""
    if isinstance(raw, sqlite3.Connection):
        seen: list[str] = []
        queue.database._opened().set_trace_callback(seen.append)  # type: ignore[attr-defined]
        # A statement is told again, with the same values, for each row that fires a trigger.
        return lambda: sum(text.startswith("INSERT INTO tasks ") for text, _ in itertools.groupby(seen))
    raw.execute("CREATE TABLE counted (n integer)")
    raw.execute(
        "CREATE FUNCTION count_insert() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN INSERT INTO {_schema(raw)}.counted VALUES (1); RETURN NULL; END $$"
    )
    raw.execute("CREATE TRIGGER count_insert AFTER INSERT ON tasks FOR EACH STATEMENT EXECUTE FUNCTION count_insert()")
    return lambda: raw.execute("SELECT count(*) FROM counted").fetchone()[0]


def refuse_the_name_bad(raw: Any) -> None:
    """A rule of the application's own that only the database knows."""
    if isinstance(raw, sqlite3.Connection):
        raw.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON tasks WHEN NEW.name = 'bad'"
            " BEGIN SELECT RAISE(ABORT, 'no bad tasks here'); END"
        )
    else:
        raw.execute("ALTER TABLE tasks ADD CONSTRAINT no_bad_tasks CHECK (name <> 'bad')")


async def test_a_hundred_at_once_need_a_handful_of_statements(queue: TaskQueue, statements: Callable[[], int]):
    ids = await asyncio.gather(*(queue.aenqueue("job", {"n": n}) for n in range(MANY)))

    assert len(set(ids)) == MANY == await queue.acount()
    assert statements() <= MANY / 10


async def test_one_alone_is_sent_at_once(queue: TaskQueue, statements: Callable[[], int]):
    for _ in range(3):
        await queue.aenqueue("job")

    assert statements() == 3


async def test_decorated_functions_share_statements_too(queue: TaskQueue, statements: Callable[[], int]):
    one, two = (queue.task(name=name)(lambda: None) for name in ("one", "two"))

    await asyncio.gather(*(each.asubmit() for each in [one, two] * (MANY // 2)))

    assert statements() <= MANY / 10
    assert await queue.acount(name="one") == await queue.acount(name="two") == MANY // 2


async def test_they_are_stored_in_the_order_they_were_submitted(queue: TaskQueue):
    await asyncio.gather(*(queue.aenqueue("job", n) for n in range(MANY)))

    assert [task.payload for task in reversed(await queue.alist())] == list(range(MANY))


@ON_DISK
async def test_each_returns_only_after_its_own_commit(queue: TaskQueue, raw: Any):
    async def submit(n: int) -> bool:
        task_id = await queue.aenqueue("job", n)
        return raw.execute(f"SELECT count(*) FROM tasks WHERE id = '{task_id}'").fetchone()[0] == 1

    assert all(await asyncio.gather(*map(submit, range(MANY))))


@pytest.mark.backends("postgres")  # where a commit can be held up without stopping the event loop
async def test_nobody_returns_while_the_commit_is_held_up(queue: TaskQueue, raw: Any):
    with raw.transaction():
        raw.execute("LOCK TABLE tasks IN SHARE MODE")
        waiting = [asyncio.ensure_future(queue.aenqueue("job", n)) for n in range(10)]
        blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'tasks'::regclass"
        await aeventually(lambda: raw.execute(blocked).fetchone()[0])
        assert not any(future.done() for future in waiting)

    assert len(set(await asyncio.gather(*waiting))) == 10


async def test_an_error_of_one_is_not_the_others(queue: TaskQueue, raw: Any):
    refuse_the_name_bad(raw)
    names = ["bad" if n == MANY // 2 else "good" for n in range(MANY)]

    answers = await asyncio.gather(*(queue.aenqueue(name) for name in names), return_exceptions=True)

    failed = [name for name, answer in zip(names, answers, strict=True) if isinstance(answer, BaseException)]
    assert failed == ["bad"]
    assert isinstance(answers[MANY // 2], StorageError)
    assert await queue.acount() == MANY - 1


async def test_a_conflict_of_one_is_not_the_others(queue: TaskQueue):
    await queue.aenqueue("job", unique_key="k")
    options: list[dict[str, Any]] = [{} for _ in range(20)]
    options[10] = {"unique_key": "k", "on_conflict": "raise"}

    answers = await asyncio.gather(*(queue.aenqueue("job", **each) for each in options), return_exceptions=True)

    assert [type(answer) for answer in answers if isinstance(answer, Exception)] == [UniqueConflict]
    assert await queue.acount() == 20


async def test_a_caller_who_gives_up_takes_nobody_along(queue: TaskQueue):
    submissions = [asyncio.ensure_future(queue.aenqueue("job", n)) for n in range(10)]
    await asyncio.sleep(0)  # all have asked; the first is on its way
    submissions[0].cancel()
    submissions[5].cancel()

    answers = await asyncio.gather(*submissions, return_exceptions=True)

    stored = {task.payload for task in await queue.alist()}
    assert [n for n, answer in enumerate(answers) if isinstance(answer, BaseException)] == [0, 5]
    assert {1, 2, 3, 4, 6, 7, 8, 9} <= stored


async def test_after_an_error_the_next_ones_go_through(queue: TaskQueue, raw: Any):
    refuse_the_name_bad(raw)
    await asyncio.gather(*(queue.aenqueue("bad") for _ in range(5)), return_exceptions=True)

    assert len(set(await asyncio.gather(*(queue.aenqueue("good") for _ in range(5))))) == 5
    assert await queue.acount() == 5


@ON_DISK
def test_each_event_loop_merges_for_itself(database_url: str):
    with TaskQueue(database_url) as queue:

        async def submit_some() -> int:
            return len(set(await asyncio.gather(*(queue.aenqueue("job") for _ in range(10)))))

        assert [asyncio.run(submit_some()) for _ in range(3)] == [10, 10, 10]
        assert queue.count() == 30


def _schema(raw: psycopg.Connection) -> str:
    row = raw.execute("SELECT current_schema").fetchone()
    assert row is not None
    return row[0]
