"""Forks beside SQLite's one writer: a child never keeps the writer's lock, and can use the queue itself."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sqlite3
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress

import pytest

from tasklib import Config, DatabaseBusy, DatabaseUnavailable, TaskContext, TaskQueue
from tests.fixtures.processes import programs
from tests.fixtures.waiting import PATIENCE

C = ctypes.PyDLL(None)
KILLED_WRITER = """
import os, signal
from tasklib import TaskContext, TaskQueue
queue = TaskQueue(sys.argv[1])

@queue.task(transactional=True)
def forks(ctx: TaskContext):
    ctx.connection.execute("CREATE TABLE IF NOT EXISTS effects (n)")
    if (child := os.fork()) == 0:
        while True:
            signal.pause()
    print(child, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

forks.submit()
ready()
queue.process_batch()
"""
ENDING_CHILD = """
import logging, os
from tasklib import TaskQueue
queue = TaskQueue(sys.argv[1])
with queue.database.transaction() as before:
    connection = before.connection
ready()
queue.enqueue("parent")
if (child := os.fork()) == 0:
    queue.enqueue("child")
    sys.exit()
status = os.waitpid(child, 0)[1]
with queue.database.transaction() as after:
    is_the_same = sys.argv[1].startswith("sqlite") or after.connection is connection
    after.connection.execute("SELECT 1")
print(json.dumps([status, queue.count(), is_the_same]))
"""

WORKER_WHOSE_TASK_ENDS_ITS_CHILD = """
import os, signal
from tasklib import TaskQueue
queue = TaskQueue(sys.argv[1])

@queue.task
def forks():
    if (child := os.fork()) == 0:
        while True:
            signal.pause()
    os.kill(child, signal.SIGTERM)
    return os.waitpid(child, 0)[1]

ready()
queue.run()
print(json.dumps("stopped"), flush=True)
"""


class Children:
    """Forked children, killed at the end of the test."""

    def __init__(self) -> None:
        self.pids: list[int] = []

    def fork(self, work: Callable[[], object] = lambda: None, fork: Callable[[], int] = os.fork) -> int:
        """A child that does the work, ends with 1 if that raises, and otherwise lives until it is killed."""
        pid = fork()
        if pid == 0:
            try:
                work()
                while True:
                    C.pause()
            except BaseException:  # noqa: BLE001  it must not go on as a second pytest
                traceback.print_exc()
            finally:
                os._exit(1)
        self.pids.append(pid)
        return pid

    def end(self) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


@pytest.fixture
def children() -> Iterator[Children]:
    children = Children()
    yield children
    children.end()


@pytest.fixture
def queue(sqlite_url: str) -> Iterator[TaskQueue]:
    with TaskQueue(Config(database_url=sqlite_url, busy_timeout_seconds=20)) as queue:
        yield queue


@pytest.mark.parametrize("fork", [os.fork, C.fork], ids=["by Python", "by a library"])
def test_a_child_forked_while_the_writer_is_held_does_not_keep_it(
    queue: TaskQueue, children: Children, fork: Callable[[], int]
):
    @queue.task(transactional=True)
    def forks(ctx: TaskContext) -> None:
        children.fork(fork=fork)

    task_id = forks.submit()
    queue.process_batch()

    assert queue.enqueue("after").created
    assert queue.get(task_id).state == "completed"


def test_a_child_forked_in_the_middle_of_a_transaction_is_told_that_it_cannot_use_the_file(queue: TaskQueue):
    answer, answered = os.pipe()

    @queue.task(transactional=True)
    def forks(ctx: TaskContext) -> None:
        if os.fork() == 0:
            try:
                queue.enqueue("by the child")
            except DatabaseUnavailable as error:
                os.write(answered, str(error).encode())
            finally:
                os._exit(0)
        os.wait()

    task_id = forks.submit()
    queue.process_batch()

    assert b"spawn or forkserver" in os.read(answer, 4096)
    assert queue.get(task_id).state == "completed"
    assert queue.count() == 1


def test_a_child_that_leaves_the_transaction_it_was_forked_in_ends_nothing_of_its_parents(
    queue: TaskQueue, sqlite_url: str
):
    other = TaskQueue(Config(database_url=sqlite_url, busy_timeout_seconds=0.1))
    other.enqueue("first")
    for ending in (KeyboardInterrupt, None):
        try:
            with queue.database.transaction() as transaction:
                transaction.connection.execute("CREATE TABLE IF NOT EXISTS effects (n)")
                pid = os.fork()
                if pid == 0 and ending is not None:
                    raise ending
                if pid:
                    os.waitpid(pid, 0)
                    with pytest.raises(DatabaseBusy, match=str(os.getpid())):
                        other.enqueue("too early")
                    transaction.connection.execute("INSERT INTO effects VALUES (1)")
        finally:
            if pid == 0:
                os._exit(0)

    assert other.enqueue("after").created
    other.close()
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as reader:
        assert reader.execute("SELECT count(*) FROM effects").fetchone() == (2,)


@pytest.mark.parametrize("kind", ["fork", "forkserver"])
def test_a_task_with_a_process_pool_of_its_own_stops_nobodys_records(queue: TaskQueue, sqlite_url: str, kind: str):
    @queue.task
    def crunch() -> int:
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(kind)) as pool:
            numbers = list(pool.map(submit_from_child, [sqlite_url] * 3))
            queue.enqueue("while the pool lives")
            return sum(numbers)

    task_id = crunch.submit()
    queue.process_batch()

    assert queue.get(task_id).result == {"value": 3}
    assert queue.count(name="by a child") == 3


def submit_from_child(url: str) -> int:
    with TaskQueue(url) as queue:
        return int(queue.enqueue("by a child").created)


def test_a_killed_writer_leaves_no_lock_to_its_children(queue: TaskQueue, sqlite_url: str):
    with programs(KILLED_WRITER, [[sqlite_url]]) as (program,):
        program.go_on()
        child = int(program.line())
        try:
            assert program.process.wait(PATIENCE) == -signal.SIGKILL

            assert queue.enqueue("after").created
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize(
    "forks", [20, pytest.param(400, marks=[pytest.mark.chaos, pytest.mark.timeout(600)])], ids=["short", "long"]
)
def test_forks_beside_a_busy_writer_stop_neither_it_nor_their_children(
    queue: TaskQueue, children: Children, forks: int
):
    queue.enqueue("first")
    stop = threading.Event()
    written: list[int] = []

    def write() -> None:
        while not stop.is_set():
            queue.enqueue("busy")
            written.append(1)

    def submit() -> None:
        queue.enqueue("by a child")
        os._exit(0)

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        idle = [children.fork() for _ in range(forks)]
        codes = [os.waitpid(children.fork(submit), 0)[1] for _ in range(forks)]
        del children.pids[len(idle) :]
    finally:
        stop.set()
        for writer in writers:
            writer.join()

    assert codes == [0] * forks
    assert queue.count(name="by a child") == forks
    assert queue.count(name="busy") == len(written) > 0


@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_a_child_that_ends_as_programs_do_leaves_its_parents_connections_alone(database_url: str):
    with programs(ENDING_CHILD, [[database_url]]) as (program,):
        program.go_on()
        assert program.value() == [0, 2, True]


def test_a_signal_to_a_tasks_forked_child_ends_the_child_and_not_the_worker(queue: TaskQueue, sqlite_url: str):
    """As multiprocessing ends the processes of its pools."""
    with programs(WORKER_WHOSE_TASK_ENDS_ITS_CHILD, [[sqlite_url]]) as (worker,):
        worker.go_on()
        for _ in range(3):
            assert queue.wait(queue.enqueue("forks", {}), timeout=180).result == {"value": signal.SIGTERM}
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.value() == "stopped"
