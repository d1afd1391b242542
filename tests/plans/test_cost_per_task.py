"""What one task costs the server from claim to finish, in pages touched and bytes logged: numbers no clock disturbs.

They grow when a column more is indexed, a row leaves its page, or a statement more is sent.  Where that is meant, raise
the bound here, and say in docs/performance.md why it is worth it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pytest

from tasklib import AsyncTaskContext, Config, TaskQueue
from tasklib.core.outcome import Completion
from tasklib.storage.operations.attempts import complete_tasks
from tasklib.storage.operations.claims import Position
from tasklib.storage.postgres import database as postgres_database
from tasklib.storage.statement import Operation, Statement
from tasklib.worker import worker as worker_module
from tasklib.worker.intake import claim_cursor
from tasklib.worker.intake.claimer import Claimer
from tests.plans.crowd import DUE, SPREAD, names
from tests.plans.postgres import PostgresTable

BATCH = 200
CLAIM_PAGES, CLAIM_BYTES = 14, 510
"""For each task; measured 12.3 and 462, and a page more where the vacuum before it could mark its page as visible to
all, which a lock has to look up."""
FINISH_PAGES, FINISH_BYTES = 7, 270
"""Measured 6.1 (3.1 on PostgreSQL 18) and 246."""
STORED_TEXT = 14_500
"""Characters; measured 13,527 on PostgreSQL 18, and 28,635 before there were domains and short conditions."""
LONE_PAGES = 45
"""Of the claim of a single task: to the best one of each name and priority, to what comes after it, and the update;
measured 35."""
TASKS_PER_STATEMENT = 5
"""Measured 23; a busy machine may cut a drain into smaller pieces."""
LONE = 20


@pytest.fixture
def table(new_postgres: Callable[[], PostgresTable]) -> PostgresTable:
    """Due tasks in a table whose changes are logged, as they are in production."""
    table = new_postgres()
    # Room for three versions of a row: whether the first can be removed in time depends on the tests beside this one.
    table.execute("ALTER TABLE tasks SET (fillfactor = 25)")
    table.execute("ALTER TABLE tasks SET LOGGED")
    table.fill("due", DUE + SPREAD)
    table.vacuum()
    table.analyze()
    return table


def cost(
    table: PostgresTable,
    make: Callable[[], Operation[Any]],
    most_pages: float,
    most_bytes: float,
    make_ready: Callable[[], object] | None = None,
) -> tuple[float, float]:
    """Pages touched and bytes logged for each task of a batch; measured again, at most twice, if that is too much: a
    session that reads the catalogue anew, because the tests beside this one have changed it, counts that too.  What was
    undone leaves some pages more behind, so it is not measured twice without need, and not before they are made ready
    again: by a vacuum, where no other snapshot needs what was undone."""
    table.explain(lambda: table.claim(["nobody"], BATCH))  # The session has read the catalogue by now.
    for remaining in (2, 1, 0):
        plan = table.explain(make)
        pages, logged = plan.buffers / BATCH, plan.logged / BATCH
        if not remaining or (pages <= most_pages and logged <= most_bytes):
            return pages, logged
        (make_ready or table.vacuum)()
    raise AssertionError("unreachable")


@pytest.mark.parametrize("children", [False, True], ids=["plain", "children"])
def test_a_claim_touches_few_pages_and_logs_few_bytes(children: bool, table: PostgresTable) -> None:
    if children:  # An index of members would have an entry more for each claim of a child.
        table.execute("UPDATE tasks SET group_id = gen_random_uuid(), marks = 1")
        table.vacuum()
        table.analyze()
    pages, logged = cost(table, lambda: table.claim(names(1), BATCH), CLAIM_PAGES, CLAIM_BYTES)
    assert pages <= CLAIM_PAGES
    assert logged <= CLAIM_BYTES


def test_a_finish_touches_few_pages_and_logs_few_bytes(table: PostgresTable) -> None:
    claimed = table.run(table.claim(names(1), BATCH)).tasks
    moment = time.monotonic()
    done = [Completion(task.id, task.version, '{"value": null}', moment, moment) for task in claimed]
    pages, logged = cost(table, lambda: complete_tasks(done), FINISH_PAGES, FINISH_BYTES)
    assert pages <= FINISH_PAGES
    assert logged <= FINISH_BYTES


def test_a_claim_of_a_single_task_touches_few_pages_however_many_are_due(table: PostgresTable) -> None:
    table.explain(lambda: table.claim(["nobody"], BATCH))  # The session has read the catalogue by now.
    for _ in range(2):
        plan = table.explain(lambda: table.claim(names(1), BATCH, lone=True))
    assert plan.buffers <= LONE_PAGES
    assert len(table.run(table.claim(names(1), BATCH, lone=True)).tasks) == 1


def test_an_empty_claim_writes_nothing(table: PostgresTable) -> None:
    _, logged = cost(table, lambda: table.claim(["nobody"], BATCH), CLAIM_PAGES, 0)
    assert logged == 0


def test_an_update_reads_little_from_stored_text(table: PostgresTable) -> None:
    """Checks, generated columns and conditions of triggers are read from it by every statement that writes, a domain
    once in a session: with domains a lone submit costs two thirds (`python -m bench instructions`)."""
    read = """
        SELECT
            (SELECT sum(length(conbin::text)) FROM pg_constraint WHERE conrelid = 'tasks'::regclass AND contype = 'c')
            + (SELECT sum(length(d.adbin::text)) FROM pg_attrdef AS d JOIN pg_attribute AS a
                ON (a.attrelid, a.attnum) = (d.adrelid, d.adnum) AND a.attgenerated <> ''
                WHERE d.adrelid = 'tasks'::regclass)
            + (SELECT sum(length(tgqual::text)) FROM pg_trigger WHERE tgrelid = 'tasks'::regclass AND tgtype & 16 > 0)
    """
    found = table.connection.execute(read).fetchone()
    assert found is not None
    assert found[0] <= STORED_TEXT
    alone = "SELECT conname FROM pg_constraint WHERE conrelid = 'tasks'::regclass AND contype = 'c'"
    assert table.connection.execute(f"{alone} AND cardinality(conkey) < 2".encode()).fetchall() == []


@pytest.mark.parametrize("count", [1, 3])
def test_a_claim_that_goes_on_does_not_walk_past_what_was_claimed(table: PostgresTable, count: int) -> None:
    """Another session's snapshot keeps the entries of all that was claimed since in the index."""
    with psycopg.connect(table.connection.info.dsn) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("SELECT pg_current_snapshot()")
        last: Sequence[Position] = ()

        def go_on() -> None:
            nonlocal last
            claimed = table.run(table.claim(names(count), BATCH, after=last))
            assert len(claimed.tasks) == BATCH
            last = claimed.last

        for _ in range(5):
            go_on()
        assert len(last) == count
        pages, _ = cost(table, lambda: table.claim(names(count), BATCH, after=last), CLAIM_PAGES, CLAIM_BYTES, go_on)
        assert pages <= CLAIM_PAGES


def test_woken_tasks_come_before_what_a_claim_goes_on_with(table: PostgresTable) -> None:
    """They lie before the place from which it goes on; found by their numbers, and only if some are known."""
    first = table.run(table.claim(names(1), BATCH))
    table.execute(
        "UPDATE tasks SET state = 'pending', worker_id = NULL, locked_until = NULL, marks = 4, "
        f"priority = CASE WHEN seq = {first.tasks[2].seq} THEN -1 ELSE 0 END WHERE seq <= {first.tasks[2].seq}"
    )
    seqs = [task.seq for task in first.tasks[:3]]
    pages, _ = cost(table, lambda: table.claim(names(1), BATCH, after=first.last), CLAIM_PAGES, CLAIM_BYTES)
    assert pages <= CLAIM_PAGES

    most = 30 * len(seqs) / BATCH
    pages, _ = cost(table, lambda: table.claim(names(1), BATCH, after=first.last, woken=seqs), most, CLAIM_BYTES)
    assert pages <= most
    claimed = table.run(table.claim(names(1), BATCH, after=first.last, woken=seqs))
    assert [task.seq for task in claimed.tasks] == seqs[:2]
    assert claimed.last == first.last
    later = table.run(table.claim(names(1), BATCH, after=first.last, woken=seqs))
    assert len(later.tasks) == BATCH
    assert min(task.seq for task in later.tasks) > max(task.seq for task in first.tasks)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The statements that event loops send, by name."""
    sent: Counter[str] = Counter()
    execute = postgres_database.execute_async

    async def counting(connection: Any, dialect: Any, statement: Statement) -> Any:
        sent[statement.name] += 1
        return await execute(connection, dialect, statement)

    monkeypatch.setattr(postgres_database, "execute_async", counting)
    return sent


async def test_a_drain_sends_few_statements(newest_postgres_url: str, sent: Counter[str]) -> None:
    async with TaskQueue(Config(database_url=newest_postgres_url)) as queue:

        @queue.task
        async def noop(n: int) -> None: ...

        await noop.asubmit_many({"n": n} for n in range(1000))
        sent.clear()
        assert await queue.aprocess_batch() == 1000
    assert sum(sent.values()) <= 1000 / TASKS_PER_STATEMENT, sent


async def test_woken_work_comes_before_new_work(
    newest_postgres_url: str, sent: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a worker that goes on from where it left off for as long as it likes, as where looks are slow."""
    for name in ("RESUME_SECONDS", "MAX_RESUME_SECONDS"):
        monkeypatch.setattr(claim_cursor, name, 3600.0)
    heard = asyncio.Event()

    class Listening(Claimer):
        def notified(self, event: str) -> None:
            super().notified(event)
            if event.startswith("woken"):
                heard.set()

    monkeypatch.setattr(worker_module, "Claimer", Listening)
    order: list[object] = []
    async with TaskQueue(Config(database_url=newest_postgres_url)) as queue:

        @queue.task(priority=1)
        async def workflow(ctx: AsyncTaskContext) -> None:
            await ctx.wait("go", int)
            order.append("resumed")

        @queue.task(priority=1)
        async def plain(n: int) -> None:
            order.append(n)
            if n == 100:
                assert sent["claim_next"], sent
                await queue.aemit("go", 1)
                await asyncio.wait_for(heard.wait(), 180)

        task_id = await workflow.asubmit()
        await queue.aprocess_batch()
        ids = await plain.asubmit_many({"n": n} for n in range(400))
        running = asyncio.ensure_future(queue.arun(concurrency=1, prefetch=10, signals=False))
        await queue.await_(ids[-1], timeout=180)
        await queue.await_(task_id, timeout=180)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert sent["claim_woken"], sent
    assert order.index(100) < order.index("resumed") <= 100 + 2 * 11, order


async def test_a_task_for_an_idle_worker_is_one_claim_and_one_finish(
    newest_postgres_url: str, sent: Counter[str]
) -> None:
    async with TaskQueue(Config(database_url=newest_postgres_url)) as queue:

        @queue.task
        async def noop(n: int) -> None: ...

        worker = asyncio.ensure_future(queue.arun(concurrency=10, poll_interval_seconds=600, signals=False))
        await queue.await_(await noop.asubmit(0), timeout=180)
        await queue.await_(await noop.asubmit(0), timeout=180)
        sent.clear()
        for n in range(LONE):
            await queue.await_(await noop.asubmit(n), timeout=180)
        claims = sum(count for name, count in sent.items() if name.startswith("claim"))
        assert sent["complete_tasks"] == LONE
        assert claims <= 2 * LONE + 1, sent  # one each; a notice that comes late makes the worker look once more
        assert sent["claim_lone"] >= LONE / 2, sent  # the smallest, which most claims of a lone task are
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
