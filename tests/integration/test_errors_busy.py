"""Somebody else holds what we need: a bounded wait, then an error that names them; then all goes on."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from tasklib import DatabaseBusy, TaskQueue
from tests.fixtures.backends import libpq_url
from tests.fixtures.processes import Program, programs
from tests.fixtures.queues import FORMS, Form, open_queue
from tests.fixtures.waiting import PATIENCE, aeventually, eventually

MILLISECONDS = {"lock": 100, "statement": 500}
"""A statement may have to wait for the processor too, and so may run out of time though nobody holds anything."""
HOLD = """
from tasklib import TaskQueue
with TaskQueue(sys.argv[1]) as queue:
    with queue.database.transaction() as transaction:
        transaction.connection.execute("UPDATE tasks SET priority = 9")
        ready()
"""


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Form:
    return request.param


def test_a_process_that_keeps_the_writer_is_named(sqlite_url: str, form: Form):
    with open_queue(sqlite_url, form, busy_timeout_seconds=0.2) as queue:
        queue.enqueue("job")
        with programs(HOLD, [[sqlite_url]]) as (holder,):
            with pytest.raises(DatabaseBusy, match=rf"process {holder.pid} .*tasks\.db") as caught:
                queue.enqueue("job")
            assert "busy_timeout_seconds" in str(caught.value)
            assert queue.count() == 1  # reading goes on beside a writer

            holder.go_on()
            assert holder.process.wait(PATIENCE) == 0
        assert queue.enqueue("job").created
        assert {task.priority for task in queue.list()} == {0, 9}


def test_a_process_that_dies_lets_the_writer_go(sqlite_url: str, form: Form):
    with open_queue(sqlite_url, form) as queue:
        queue.enqueue("job")
        with programs(HOLD, [[sqlite_url]]) as (holder,):
            holder.process.kill()

            assert queue.enqueue("job").created
        assert {task.priority for task in queue.list()} == {0}


def test_a_writer_that_comes_back_in_time_is_waited_for(sqlite_url: str):
    with open_queue(sqlite_url, busy_timeout_seconds=30) as queue:
        queue.enqueue("job")
        with programs(HOLD, [[sqlite_url]]) as (holder,):
            submit = """
from tasklib import TaskQueue
queue = TaskQueue(sys.argv[1])
queue.count()
ready()
print(json.dumps(str(queue.enqueue("late"))))
"""
            with programs(submit, [[sqlite_url]]) as (late,):
                late.go_on()
                eventually(lambda: _waits_for_the_lock(late))
                holder.go_on()
                assert queue.read(late.value()).name == "late"


def test_a_program_that_is_not_ours_is_told_apart(sqlite_url: str, form: Form):
    with open_queue(sqlite_url, form, busy_timeout_seconds=0.2) as queue:
        queue.count()
        other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(DatabaseBusy, match="another program"):
            queue.enqueue("job")

        other.execute("COMMIT")
        other.close()
        assert queue.enqueue("job").created
        assert queue.count() == 1


@pytest.mark.parametrize("timeout", ["lock", "statement"])
def test_an_application_that_holds_the_table_is_told_when_the_role_has_a_timeout(
    newest_postgres_url: str, form: Form, timeout: str
):
    with psycopg.connect(libpq_url(newest_postgres_url)) as other:
        with open_queue(bounded(newest_postgres_url, timeout), form) as queue:
            eventually(lambda: queue.count() == 0)
            other.execute("LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE")

            with pytest.raises(DatabaseBusy, match=f"{timeout} timeout"):
                queue.enqueue("job", unique_key="once")

            other.rollback()
            eventually(lambda: queue.enqueue("job", unique_key="once"))
            eventually(lambda: queue.count() == 1)


async def test_a_worker_whose_statements_run_out_of_time_goes_on_when_they_do_not(
    newest_postgres_url: str, caplog: pytest.LogCaptureFixture
):
    with psycopg.connect(libpq_url(newest_postgres_url)) as other:
        async with (
            TaskQueue(bounded(newest_postgres_url, "statement")) as queue,
            TaskQueue(newest_postgres_url) as patient,
        ):
            queue.register_handler("job", lambda payload: payload)
            task_id = await patient.aenqueue("job", 1)
            other.execute("LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE")
            working = asyncio.ensure_future(queue.arun(poll_interval_seconds=0.1))
            await aeventually(lambda: "statement timeout" in caplog.text)

            other.rollback()
            assert (await patient.await_(task_id, timeout=PATIENCE)).state == "completed"
            working.cancel()
            await asyncio.wait([working])


def test_a_pool_in_use_to_the_last_connection_is_told(newest_postgres_url: str):
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'tasks'::regclass"
    with (
        open_queue(newest_postgres_url, pool_size=1, connect_timeout_seconds=1.0) as queue,
        psycopg.connect(libpq_url(newest_postgres_url)) as other,
        ThreadPoolExecutor(1) as threads,
    ):
        eventually(lambda: queue.count() == 0)
        other.execute("LOCK TABLE tasks IN SHARE MODE")
        blocked = threads.submit(queue.plain.enqueue, "job")
        eventually(lambda: other.execute(waiting).fetchone()[0])

        with pytest.raises(DatabaseBusy, match=r"all 1 connections.*pool_size"):
            queue.count()

        other.rollback()
        assert blocked.result(PATIENCE).created
        assert queue.count() == 1


def bounded(url: str, timeout: str) -> str:
    """The address for a role with such a timeout; its tables are there already, because making them may take long."""
    with TaskQueue(url) as queue:
        queue.migrate()
    return f"{url}&options=-c{timeout}_timeout%3D{MILLISECONDS[timeout]}"


def _waits_for_the_lock(program: Program) -> bool:
    """Whether the kernel says that the process stands in line for a file lock; where it does not tell, hope so."""
    locks = Path("/proc/locks")
    lines = locks.read_text().splitlines() if locks.exists() else [f"-> {program.pid} "]
    return any("->" in line and f" {program.pid} " in line for line in lines)
