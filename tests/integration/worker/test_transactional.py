"""Transactional tasks: the function's writes, the tasks it submits, its result and its completion are one."""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tasklib import Abort, Config, Task, TaskContext, TaskId, TaskQueue
from tasklib.storage.operations.claims import Claim, claim_tasks
from tasklib.storage.operations.workers import Registration, register_worker
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.call import COMMITTED, Caller
from tasklib.worker.upkeep import watch
from tests.fixtures.backends import libpq_url
from tests.fixtures.virtual import TimersByHand
from tests.fixtures.waiting import aeventually

PATIENCE = 180.0
Steps = Generator[Any, Any, Any]


class Bank:
    """A queue with a table of the user's beside its own, and the transactional task `job`.

    What the task does is written once, as a generator: in a coroutine what it yields is awaited if it can be.
    """

    def __init__(self, url: str, kind: str, **settings: Any) -> None:
        self.url, self.kind = url, kind
        self.queue = TaskQueue(Config(database_url=url, **{"base_retry_delay_seconds": 0.01} | settings))
        self.queue.migrate()
        schema = self.queue.config.db_schema
        self.table, self.mark = (f"{schema}.ledger", "%s") if schema else ("ledger", "?")
        self.run_sql(f"CREATE TABLE {self.table} (entry text)")

    def define(self, act: Callable[[TaskContext], Steps], name: str = "job", **options: Any) -> None:
        def job(ctx: TaskContext) -> Any:
            steps = act(ctx)
            try:
                answer = None
                while True:
                    answer = steps.send(answer)
            except StopIteration as stop:
                return stop.value

        async def job_async(ctx: TaskContext) -> Any:
            steps = act(ctx)
            try:
                answer = None
                while True:
                    step = steps.send(answer)
                    answer = await step if inspect.isawaitable(step) else step
            except StopIteration as stop:
                return stop.value

        self.queue.register_handler(name, job if self.kind == "def" else job_async, transactional=True, **options)

    def write(self, ctx: TaskContext, entry: str) -> Any:
        """Insert a row through the task's connection."""
        return ctx.connection.execute(f"INSERT INTO {self.table} VALUES ({self.mark})", (entry,))

    def submit(self, name: str) -> Any:
        """Submit a task in the form that suits the function."""
        return self.queue.enqueue(name) if self.kind == "def" else self.queue.aenqueue(name)

    def run_job(self, **options: Any) -> Task:
        """Submit `job`, let a worker run what is due, and give the task as it is then."""
        task_id = self.queue.enqueue("job", **options)
        self.queue.process_batch()
        return self.read(task_id)

    def read(self, task_id: TaskId) -> Task:
        task = self.queue.get(task_id)
        assert task is not None
        return task

    def entries(self) -> list[str]:
        return [row[0] for row in self.run_sql(f"SELECT entry FROM {self.table} ORDER BY entry")]

    def run_sql(self, text: str) -> list[Any]:
        """Run a statement as another program would."""
        if self.url == "sqlite:///:memory:":
            return list(self.queue.database._opened().execute(text).fetchall())  # type: ignore[attr-defined]
        with closing(self.connect()) as connection:
            cursor = connection.execute(text)
            return list(cursor.fetchall()) if cursor.description else []

    def connect(self) -> Any:
        if self.queue.config.is_sqlite:
            return sqlite3.connect(self.url.removeprefix("sqlite:///"), isolation_level=None)
        return psycopg.connect(libpq_url(self.url), autocommit=True)

    @asynccontextmanager
    async def worker(self, concurrency: int = 1) -> AsyncIterator[None]:
        """A worker in the background of the test."""
        running = asyncio.create_task(self.queue.arun(concurrency, signals=False, poll_interval_seconds=0.05))
        try:
            yield
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


OpenBank = Callable[..., Bank]


@pytest.fixture(params=["def", "async def"])
def open_bank(request: pytest.FixtureRequest, database_url: str) -> Iterator[OpenBank]:
    banks: list[Bank] = []

    def make(**settings: Any) -> Bank:
        banks.append(Bank(database_url, request.param, **settings))
        return banks[-1]

    yield make
    for bank in banks:
        bank.queue.close()


@pytest.fixture
def bank(open_bank: OpenBank) -> Bank:
    return open_bank()


def test_everything_is_there_when_the_function_has_returned(bank: Bank) -> None:
    def act(ctx: TaskContext) -> Steps:
        yield bank.write(ctx, "one")
        yield bank.submit("child")
        yield bank.write(ctx, "two")
        return "done"

    bank.define(act)
    task = bank.run_job()

    assert (task.state, task.result, bank.entries()) == ("completed", {"value": "done"}, ["one", "two"])
    assert bank.queue.count(name="child", state="pending") == 1


def test_an_exception_undoes_everything(bank: Bank) -> None:
    def act(ctx: TaskContext) -> Steps:
        yield bank.write(ctx, "one")
        yield bank.submit("child")
        raise ValueError("after all, no")

    bank.define(act)
    task = bank.run_job(max_attempts=1)

    assert (task.state, bank.entries(), bank.queue.count(name="child")) == ("failed", [], 0)
    assert (task.error or "").endswith("ValueError: after all, no")


def test_a_result_that_cannot_be_stored_undoes_everything(bank: Bank) -> None:
    def act(ctx: TaskContext) -> Steps:
        yield bank.write(ctx, "one")
        return object()

    bank.define(act)
    task = bank.run_job()

    assert (task.state, "ResultError" in (task.error or ""), bank.entries()) == ("failed", True, [])


def test_what_the_function_logs_is_kept(bank: Bank) -> None:
    def act(ctx: TaskContext) -> Steps:
        ctx.log("almost there")
        yield

    bank.define(act)

    assert [line.text for line in bank.run_job().log] == ["almost there"]


@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_the_function_cannot_end_its_transaction(bank: Bank, how: str) -> None:
    def act(ctx: TaskContext) -> Steps:
        yield bank.write(ctx, "one")
        yield getattr(ctx.connection, how)()

    bank.define(act)
    task = bank.run_job(max_attempts=1)

    assert (task.state, bank.entries()) == ("failed", [])


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
def test_a_transaction_that_was_ended_by_a_statement_is_not_completed(bank: Bank, statement: str) -> None:
    def act(ctx: TaskContext) -> Steps:
        yield ctx.connection.execute(statement)

    bank.define(act)
    task = bank.run_job(max_attempts=1)

    assert (task.state, "ctx.connection" in (task.error or "")) == ("failed", True)


@pytest.mark.backends("sqlite")
def test_a_script_which_would_commit_first_is_refused(bank: Bank) -> None:
    def act(ctx: TaskContext) -> Steps:
        yield bank.write(ctx, "one")
        ctx.connection.executescript(f"INSERT INTO {bank.table} VALUES ('two')")

    bank.define(act)
    task = bank.run_job(max_attempts=1)

    assert (task.state, bank.entries()) == ("failed", [])
    assert "executescript" in (task.error or "")


@pytest.mark.backends("sqlite")
def test_a_write_after_sqlite_gave_up_the_transaction_is_refused(bank: Bank) -> None:
    def act(ctx: TaskContext) -> Steps:
        ctx.connection.execute("CREATE TEMP TABLE once (entry text PRIMARY KEY)")
        yield bank.write(ctx, "one")
        with suppress(sqlite3.IntegrityError):
            ctx.connection.executemany("INSERT OR ROLLBACK INTO once VALUES (?)", [("a",), ("a",)])
        yield bank.write(ctx, "two")

    bank.define(act)
    task = bank.run_job(max_attempts=1)

    assert (task.state, bank.entries()) == ("failed", [])


@pytest.mark.backends("sqlite")
def test_what_would_wait_for_the_transaction_it_is_called_in_is_refused_at_once(bank: Bank) -> None:
    def act(ctx: TaskContext) -> Steps:
        yield bank.queue.pause("other") if bank.kind == "def" else bank.queue.apause("other")

    bank.define(act)
    task = bank.run_job(max_attempts=1)

    assert (task.state, bank.queue.is_paused("other")) == ("failed", False)
    assert "in a task that you submit" in (task.error or "")


@pytest.mark.backends("postgres-newest")
def test_a_failed_statement_must_not_be_swallowed(bank: Bank) -> None:
    def act(ctx: TaskContext) -> Steps:
        if bank.kind == "def":
            with suppress(psycopg.Error):
                ctx.connection.execute("SELECT 1 / 0")
        else:
            yield asyncio.gather(ctx.connection.execute("SELECT 1 / 0"), return_exceptions=True)

    bank.define(act)
    task = bank.run_job(max_attempts=1)

    assert (task.state, "with ctx.connection.transaction()" in (task.error or "")) == ("failed", True)


def test_part_of_the_work_can_be_undone(bank: Bank) -> None:
    def act(ctx: TaskContext) -> Steps:
        yield bank.write(ctx, "one")
        yield ctx.connection.execute("SAVEPOINT risky")
        yield bank.write(ctx, "two")
        yield ctx.connection.execute("ROLLBACK TO SAVEPOINT risky")

    bank.define(act)

    assert (bank.run_job().state, bank.entries()) == ("completed", ["one"])


def test_what_the_function_does_to_its_connection_harms_nobody(bank: Bank) -> None:
    def spoil(ctx: TaskContext) -> Steps:
        ctx.connection.row_factory = lambda *_: lambda *_: {"all": "gone"}
        yield ctx.connection.execute("SELECT 1 UNION SELECT 2")  # its rows are never read

    def count(ctx: TaskContext) -> Steps:
        cursor = yield ctx.connection.execute("SELECT 3")
        return list((yield cursor.fetchone()))

    bank.define(spoil)
    assert bank.run_job().state == "completed"
    bank.define(count)
    assert bank.run_job().result == {"value": [3]}


def test_a_function_that_closes_its_connection_harms_nobody(bank: Bank) -> None:
    def act(ctx: TaskContext) -> Steps:
        yield bank.write(ctx, "lost")
        yield ctx.connection.close()

    bank.define(act)
    assert bank.run_job(max_attempts=1).state == "failed"
    bank.define(lambda ctx: (yield bank.write(ctx, "kept")) and None)
    assert (bank.run_job().state, bank.entries()) == ("completed", ["kept"])


def test_the_connection_is_gone_when_the_function_has_ended(bank: Bank) -> None:
    seen: list[TaskContext] = []

    def act(ctx: TaskContext) -> Steps:
        seen.append(ctx)
        yield ctx.connection

    bank.define(act)
    bank.run_job()

    with pytest.raises(AttributeError, match="no transaction"):
        _ = seen[0].connection


async def test_many_at_once_take_turns(open_bank: OpenBank) -> None:
    """On SQLite all but one wait for the writer, and none of them keeps the one that has it from finishing."""
    bank = open_bank(busy_timeout_seconds=4 * PATIENCE)

    def act(ctx: TaskContext) -> Steps:
        yield bank.write(ctx, str(ctx.task.id))
        yield bank.submit("child")

    bank.define(act)
    ids = [await bank.queue.aenqueue("job") for _ in range(30)]
    async with asyncio.timeout(2 * PATIENCE), bank.worker(concurrency=30):
        for task_id in ids:
            assert (await bank.queue.await_(task_id, PATIENCE)).attempts == 1

    assert bank.entries() == sorted(map(str, ids))
    assert await bank.queue.acount(name="child") == len(ids)


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


@pytest.mark.backends("sqlite-file")
async def test_a_long_statement_on_sqlite_is_cut_short(open_bank: OpenBank) -> None:
    bank = open_bank(busy_timeout_seconds=2.0)

    def act(ctx: TaskContext) -> Steps:
        yield bank.write(ctx, "one")
        yield ctx.connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
        )

    bank.define(act)
    task = await asyncio.to_thread(bank.run_job, max_attempts=1)

    assert (task.state, bank.entries()) == ("failed", [])
    assert "held SQLite's only writer for more than 1 s and was undone" in (task.error or "")


@pytest.mark.backends("sqlite-file")
async def test_a_function_that_keeps_sqlite_waiting_loses_its_transaction_and_nobody_else_waits(
    open_bank: OpenBank,
) -> None:
    bank = open_bank(busy_timeout_seconds=4.0)
    inside, outside = threading.Event(), threading.Event()

    def act(ctx: TaskContext) -> Steps:
        yield bank.write(ctx, "one")
        inside.set()
        yield outside.wait(PATIENCE) if bank.kind == "def" else asyncio.to_thread(outside.wait, PATIENCE)
        with suppress(sqlite3.Error):
            yield bank.write(ctx, "two")

    bank.define(act)
    task_id = await bank.queue.aenqueue("job", max_attempts=1)
    async with bank.worker():
        await asyncio.to_thread(inside.wait, PATIENCE)
        await bank.queue.aenqueue("other")  # a write of somebody else succeeds while the function is still there
        outside.set()
        task = await bank.queue.await_(task_id, PATIENCE)

    assert (task.state, bank.entries()) == ("failed", [])
    assert "held SQLite's only writer for more than 2 s and was undone" in (task.error or "")


@pytest.mark.backends("postgres")
async def test_renewal_and_cancel_reach_a_task_while_it_has_its_transaction(open_bank: OpenBank) -> None:
    """Even if the pool has a single connection: those lent to users' code are others."""
    bank = open_bank(pool_size=1, lock_timeout_seconds=3.0, worker_timeout_seconds=6.0)
    inside = threading.Event()

    def act(ctx: TaskContext) -> Steps:
        yield bank.write(ctx, "one")
        inside.set()
        yield ctx.wait_cancelled(PATIENCE) if bank.kind == "def" else asyncio.Event().wait()
        raise ValueError("ended early")

    def times() -> Any:
        """When the lease ends, and when the worker was last heard."""
        [row] = bank.run_sql("SELECT t.locked_until, w.heartbeat_at FROM tasks AS t, tasklib_workers AS w")
        return row

    bank.define(act)
    task_id = await bank.queue.aenqueue("job")
    async with bank.worker():
        await asyncio.to_thread(inside.wait, PATIENCE)
        first = times()
        await aeventually(lambda: all(now > then for now, then in zip(times(), first, strict=True)), PATIENCE)
        await bank.queue.acancel(task_id)
        task = await bank.queue.await_(task_id, PATIENCE)

    assert (task.state, task.attempts, bank.entries()) == ("cancelled", 1, [])


def test_what_returns_after_its_timeout_is_undone(bank: Bank) -> None:
    """On SQLite the end of an abandoned thread cannot be recorded while the thread has the only writer."""

    def act(ctx: TaskContext) -> Steps:
        yield bank.write(ctx, "one")
        with suppress(asyncio.CancelledError):
            yield ctx.wait_cancelled(PATIENCE) if bank.kind == "def" else asyncio.Event().wait()
        return "late"

    bank.define(act, timeout_seconds=0.05)
    task = bank.run_job(max_attempts=1)

    assert (task.state, task.result, bank.entries()) == ("failed", None, [])
    assert "TaskTimeout" in (task.error or "")


HOLD_COMMITS = """
    CREATE FUNCTION wait_for_gate() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(77); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER held_commit AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION wait_for_gate()
"""
IN_COMMIT = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event = 'advisory' AND query = 'COMMIT'
"""


@contextmanager
def held_commits(bank: Bank) -> Iterator[None]:
    """Inside the block no COMMIT ends that writes an entry."""
    bank.run_sql(HOLD_COMMITS)
    with closing(bank.connect()) as gate:
        gate.execute("SELECT pg_advisory_lock(77)")
        yield


@pytest.mark.backends("postgres-newest")
async def test_a_timeout_does_not_break_off_a_commit_under_way(open_bank: OpenBank) -> None:
    bank = open_bank()
    timing = bank.queue.timing = TimersByHand()
    errors: list[BaseException] = []
    bank.queue.on_error(lambda ctx, error: errors.append(error))

    def act(ctx: TaskContext) -> Steps:
        yield bank.write(ctx, "one")

    bank.define(act, timeout_seconds=3600.0)
    async with bank.worker():
        with held_commits(bank):
            task_id = await bank.queue.aenqueue("job")
            await aeventually(lambda: bank.run_sql(IN_COMMIT), PATIENCE)
            timing.fire(3500, 3600)
        task = await bank.queue.await_(task_id, PATIENCE)

    assert (task.state, task.attempts, bank.entries()) == ("completed", 1, ["one"])
    if bank.kind == "async def":  # a thread cannot be waited for: its timeout is told, and refused by the database
        assert errors == []


@pytest.mark.backends("postgres-newest")
@pytest.mark.parametrize("lost", ["answer", "transaction"])
async def test_a_connection_lost_in_commit_leaves_the_effect_once(open_bank: OpenBank, lost: str) -> None:
    """Whether COMMIT took effect cannot be known then; the fence of the next write decides."""
    bank = open_bank()
    sockets: list[int] = []

    def act(ctx: TaskContext) -> Steps:
        sockets.append(ctx.connection.fileno())
        yield bank.write(ctx, f"attempt {ctx.attempt}")

    bank.define(act)
    async with bank.worker():
        with held_commits(bank):
            task_id = await bank.queue.aenqueue("job")
            [[backend]] = await aeventually(lambda: bank.run_sql(IN_COMMIT), PATIENCE)
            if lost == "answer":
                with socket.socket(fileno=os.dup(sockets[0])) as line:
                    line.shutdown(socket.SHUT_RDWR)
            else:
                bank.run_sql(f"SELECT pg_terminate_backend({backend}, 5000)")
        task = await bank.queue.await_(task_id, PATIENCE)

    attempt = 1 if lost == "answer" else 2
    assert (task.state, task.attempts, bank.entries()) == ("completed", attempt, [f"attempt {attempt}"])


@pytest.mark.backends("postgres")
async def test_an_attempt_that_lost_its_claim_is_undone_and_the_next_one_counts(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # The worker does not notice before it is told at the completion.
    monkeypatch.setattr(watch, "WATCH_SECONDS", PATIENCE)
    inside, outside = threading.Event(), threading.Event()
    errors: list[BaseException] = []
    bank.queue.on_error(lambda ctx, error: errors.append(error))

    def act(ctx: TaskContext) -> Steps:
        yield bank.write(ctx, f"attempt {ctx.attempt}")
        yield bank.submit("child")
        inside.set()
        yield outside.wait(PATIENCE) if bank.kind == "def" else asyncio.to_thread(outside.wait, PATIENCE)

    bank.define(act)
    task_id = await bank.queue.aenqueue("job")
    async with bank.worker():
        await asyncio.to_thread(inside.wait, PATIENCE)
        bank.run_sql("UPDATE tasks SET locked_until = now() - interval '1 second'")
        assert await bank.queue.arecover_stale_tasks() == 1
        outside.set()
        task = await bank.queue.await_(task_id, PATIENCE)

    assert (task.state, task.attempts, bank.entries()) == ("completed", 2, ["attempt 2"])
    assert await bank.queue.acount(name="child") == 1
    assert f"late write refused: task {task_id}" in caplog.text
    assert errors == []


def test_an_attempt_that_lost_its_claim_before_it_began_is_undone(bank: Bank) -> None:
    """On SQLite nobody can take it away later, because nobody else can write."""
    bank.define(lambda ctx: (yield bank.write(ctx, "late")) and None)
    task_id = bank.queue.enqueue("job")
    task = claim_by_hand(bank.queue)
    bank.run_sql("UPDATE tasks SET state = 'pending', worker_id = NULL, locked_until = NULL")
    definition = bank.queue.registry.get("job")
    assert definition is not None
    caller = Caller(bank.queue, max_result_bytes=1000)
    call = caller.prepare(definition, task, SimpleNamespace(context=TaskContext(task.task("gone"))))

    assert (call() if bank.kind == "def" else asyncio.run(call())) is COMMITTED
    assert (bank.read(task_id).state, bank.entries()) == ("pending", [])


def claim_by_hand(queue: TaskQueue) -> ClaimedTask:
    """The one task that is due, claimed by a worker that does nothing else."""
    who = Registration(uuid4(), "by hand", "host", 1, 30.0, 1, ("job",))
    queue.database.run(lambda: register_worker(who))
    claimed = queue.database.run(
        lambda: claim_tasks(
            Claim(
                instance=who.instance,
                worker_id=who.worker_id,
                names=who.names,
                limit=1,
                lease_seconds=600,
                held=[],
            )
        )
    )
    [task] = claimed.tasks
    return task


@pytest.mark.backends("postgres-newest")
def test_the_users_own_exception_survives_the_loss_of_the_connection(bank: Bank) -> None:
    def act(ctx: TaskContext) -> Steps:
        yield bank.write(ctx, "one")
        bank.run_sql(f"SELECT pg_terminate_backend({ctx.connection.info.backend_pid}, 5000)")
        raise Abort("no use")

    bank.define(act)
    task = bank.run_job()

    assert (task.state, task.attempts, bank.entries()) == ("failed", 1, [])
    assert (task.error or "").endswith("Abort: no use")


@pytest.mark.backends("postgres-newest")
async def test_an_attempt_that_gets_no_connection_is_not_spent(open_bank: OpenBank) -> None:
    bank = open_bank(pool_size=1, connect_timeout_seconds=1.5)
    inside, outside = threading.Event(), threading.Event()

    def act(ctx: TaskContext) -> Steps:
        inside.set()
        yield outside.wait(PATIENCE) if bank.kind == "def" else asyncio.to_thread(outside.wait, PATIENCE)

    bank.define(act)
    bank.define(act, "second")
    first = await bank.queue.aenqueue("job")
    async with bank.worker(concurrency=2):
        await asyncio.to_thread(inside.wait, PATIENCE)
        second = await bank.queue.aenqueue("second", max_attempts=1)
        await aeventually(lambda: bank.read(second).next_retry_at is not None, PATIENCE)
        waiting = bank.read(second)
        outside.set()
        await bank.queue.await_(second, PATIENCE)
        await bank.queue.await_(first, PATIENCE)

    assert (waiting.state, waiting.attempts, bank.read(second).attempts) == ("pending", 0, 1)
