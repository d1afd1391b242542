"""Steps in transactions that run past their timeout: nothing is left of them, whenever their functions end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tasklib import AsyncTaskContext, StepFailed, TaskContext, TaskState, current_context
from tests.fixtures.queues import Face

pytestmark = pytest.mark.backends("sqlite-file", "postgres")  # a database in memory has one connection


class Ledger:
    """A table in which steps write, and what late functions found."""

    def __init__(self, queue: Face) -> None:
        self._queue = queue
        self._schema = "main" if queue.is_sqlite else queue.sql("SELECT current_schema AS name")[0]["name"]
        self.over = threading.Event()
        """Set when the step has failed: its function goes on only then."""
        self.refused: list[Exception] = []
        self.late: list[threading.Thread] = []

    def insert(self, entry: str) -> str:
        return f"INSERT INTO {self._schema}.ledger VALUES ('{entry}')"

    def book(self, entry: str) -> Any:
        return current_context().connection.execute(self.insert(entry))

    def book_late(self, entry: str) -> str:
        """Write in time, and again after the timeout, however that ends; and return as if nothing had happened."""
        self.late.append(threading.current_thread())
        connection = current_context().connection
        self.book(entry)
        self.over.wait()
        try:
            connection.execute(self.insert(f"late {entry}"))
        except Exception as error:  # noqa: BLE001  what it finds is looked at by the test
            self.refused.append(error)
        return entry

    @property
    def entries(self) -> list[str]:
        for thread in self.late:
            thread.join()
        return [row["entry"] for row in self._queue.sql("SELECT entry FROM ledger ORDER BY entry")]


@pytest.fixture
def ledger(queue: Face) -> Iterator[Ledger]:
    queue.sql("CREATE TABLE ledger (entry text)")
    made = Ledger(queue)
    yield made
    made.over.set()
    assert made.entries is not None
    queue.sql("DROP TABLE ledger")


def run(queue: Face, task_id: Any) -> Any:
    while queue.process_batch():
        pass
    return queue.read(task_id)


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_function_in_a_thread_that_ends_late_commits_nothing(queue: Face, ledger: Ledger, kind: str):
    @queue.task
    def undo() -> None: ...

    @queue.task(max_retries=0, name="def")
    def blocking(ctx: TaskContext) -> str:
        limited = ctx.options(transactional=True, timeout_seconds=0.05, undo=undo.bind())
        try:
            limited.step(ledger.book_late, "debit")
        except StepFailed as failed:
            ledger.over.set()
            return failed.type
        return "done"

    @queue.task(max_retries=0, name="async def")
    async def awaiting(ctx: AsyncTaskContext) -> str:
        limited = ctx.options(transactional=True, timeout_seconds=0.05, undo=undo.bind())
        try:
            await limited.step(ledger.book_late, "debit")
        except StepFailed as failed:
            ledger.over.set()
            return failed.type
        return "done"

    task = run(queue, {"def": blocking, "async def": awaiting}[kind].submit())

    assert task.result == {"value": "TaskTimeout"}
    assert (ledger.entries, len(ledger.refused)) == ([], 1)
    (step,) = queue.steps(task.id)
    assert (step.key, step.state, step.undo) == ("book_late", "failed", None)


def test_what_was_undone_at_its_timeout_is_not_undone_by_a_task(queue: Face, ledger: Ledger):
    undone: list[str] = []

    @queue.task
    def undo(what: str) -> None:
        undone.append(what)

    def book() -> None:
        ledger.book("a")

    def saga(ctx: TaskContext) -> None:
        ctx.options(transactional=True, undo=undo.bind("first"), timeout_seconds=60, name="first").step(book)
        try:
            ctx.options(transactional=True, undo=undo.bind("second"), timeout_seconds=0.05).step(ledger.book_late, "b")
        finally:
            ledger.over.set()

    task = run(queue, queue.task(max_retries=0)(saga).submit())

    assert (task.state, ledger.entries, undone) == (TaskState.FAILED, ["a"], ["first"])


@pytest.mark.backends("postgres")  # on SQLite the end of the attempt waits for the transaction
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_function_that_outlives_its_attempt_commits_nothing(queue: Face, ledger: Ledger, kind: str):
    @queue.task(max_retries=0, timeout_seconds=0.05, name="def")
    def blocking(ctx: TaskContext) -> None:
        ctx.options(transactional=True).step(ledger.book_late, "debit")

    @queue.task(max_retries=0, timeout_seconds=0.05, name="async def")
    async def awaiting(ctx: AsyncTaskContext) -> None:
        await ctx.options(transactional=True).step(ledger.book_late, "debit")

    task = run(queue, {"def": blocking, "async def": awaiting}[kind].submit())
    ledger.over.set()

    assert "TaskTimeout" in (task.error or "")
    assert (ledger.entries, queue.steps(task.id)) == ([], [])


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_coroutine_past_its_timeout_is_undone_even_if_it_goes_on(queue: Face, ledger: Ledger, kind: str):
    async def stubborn(entry: str) -> None:
        for each in ("before", "after"):
            written = ledger.book(f"{entry} {each}")
            if asyncio.iscoroutine(written):
                await written
            try:
                await asyncio.Event().wait() if each == "before" else None
            except asyncio.CancelledError:
                if entry == "ends":
                    raise

    @queue.task(max_retries=0, name="def")
    def blocking(ctx: TaskContext, entry: str) -> None:
        ctx.options(transactional=True, timeout_seconds=0.05).step(stubborn, entry)

    @queue.task(max_retries=0, name="async def")
    async def awaiting(ctx: AsyncTaskContext, entry: str) -> None:
        await ctx.options(transactional=True, timeout_seconds=0.05).step(stubborn, entry)

    for entry in ("ends", "goes on"):
        task = run(queue, {"def": blocking, "async def": awaiting}[kind].submit(entry))

        assert (task.state, "TaskTimeout" in (task.error or "")) == (TaskState.FAILED, True)
        assert ledger.entries == []
        assert [step.state for step in queue.steps(task.id)] == ["open"]  # a retry would run it again


def test_the_next_try_writes_once_while_the_first_still_runs(queue: Face, ledger: Ledger):
    """The first try has locked what the second needs: at its timeout it is undone, not when its function ends."""
    tries: list[str] = []

    def book(entry: str) -> str:
        tries.append(entry)
        return ledger.book_late(entry) if len(tries) == 1 else str(ledger.book(entry) and entry)

    @queue.task(max_retries=0)
    def workflow(ctx: TaskContext) -> str:
        done = ctx.options(transactional=True, timeout_seconds=1, retries=1, delay_seconds=0).step(book, "debit")
        ledger.over.set()
        return done

    queue.sql("CREATE UNIQUE INDEX once ON ledger (entry)")
    task = run(queue, workflow.submit())

    assert (task.result, tries) == ({"value": "debit"}, ["debit", "debit"])
    assert (ledger.entries, len(ledger.refused)) == (["debit"], 1)


def test_a_late_function_submits_nothing_either(queue: Face, ledger: Ledger):
    @queue.task
    def other() -> None: ...

    def submit_late() -> None:
        ledger.late.append(threading.current_thread())
        other.submit()
        ledger.over.wait()
        try:
            other.submit()
        except Exception as error:  # noqa: BLE001
            ledger.refused.append(error)

    @queue.task(max_retries=0)
    def workflow(ctx: TaskContext) -> None:
        try:
            ctx.options(transactional=True, timeout_seconds=0.05).step(submit_late)
        finally:
            ledger.over.set()

    task = run(queue, workflow.submit())

    assert (task.state, ledger.entries, len(ledger.refused)) == (TaskState.FAILED, [], 1)
    assert queue.count(name="other") == 0


@pytest.mark.backends("postgres")
def test_a_statement_that_waits_is_interrupted(queue: Face, ledger: Ledger):
    def wait_for_ever() -> None:
        ledger.late.append(threading.current_thread())
        ledger.book("debit")
        current_context().connection.execute("SELECT pg_sleep(600)")

    @queue.task(max_retries=0)
    def workflow(ctx: TaskContext) -> None:
        ctx.options(transactional=True, timeout_seconds=0.05).step(wait_for_ever)

    task = run(queue, workflow.submit())

    assert "TaskTimeout" in (task.error or "")
    assert ledger.entries == []  # the thread has ended
    assert queue.sql(
        "SELECT count(*) AS n FROM pg_stat_activity"
        " WHERE datname = current_database() AND query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()"
    ) == [{"n": 0}]


@pytest.mark.backends("postgres")  # SQLite commits in no time
def test_a_function_that_ended_in_time_is_committed_however_long_that_takes(queue: Face, ledger: Ledger):
    """The time is that of the function: once it has ended, the commit comes first."""
    queue.sql(
        "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql "
        "AS $$ BEGIN PERFORM pg_sleep(0.2); RETURN NULL; END $$"
    )
    queue.sql(
        "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION slowly()"
    )

    def book() -> None:
        ledger.book("debit")

    async def abook() -> None:
        await ledger.book("credit")

    @queue.task(max_retries=0)
    def blocking(ctx: TaskContext) -> None:
        ctx.options(transactional=True, timeout_seconds=0.1).step(book)

    @queue.task(max_retries=0)
    async def awaiting(ctx: AsyncTaskContext) -> None:
        await ctx.options(transactional=True, timeout_seconds=0.1).step(abook)

    ended = [run(queue, task.submit()).state for task in (blocking, awaiting)]
    queue.sql("DROP FUNCTION slowly CASCADE")

    assert (ended, ledger.entries) == ([TaskState.COMPLETED] * 2, ["credit", "debit"])
