"""A machine whose clock is wrong works like any other: on PostgreSQL every time is the database's.

On SQLite the machine's clock is the database's; there is no other to be wrong against.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from tasklib import Task, TaskQueue
from tests.fixtures.processes import programs
from tests.fixtures.waiting import eventually

HOUR = 3600
# Wrong before anything of ours is imported.  What asks whether a value is a datetime means the real one.
WORKER = """
import datetime, time
import psycopg  # compiled against the real one

url, name, off = sys.argv[1], sys.argv[2], float(sys.argv[3])
real_time, real = time.time, datetime.datetime
time.time = lambda: real_time() + off
time.time_ns = lambda: int(time.time() * 1e9)

class Kind(type):
    def __instancecheck__(cls, value):
        return isinstance(value, real)

class Wrong(real, metaclass=Kind):
    @classmethod
    def now(cls, tz=None):
        return real.now(tz) + datetime.timedelta(seconds=off)

datetime.datetime = Wrong

from tasklib import Config, Retry, TaskContext, TaskQueue

queue = TaskQueue(Config(database_url=url, worker_timeout_seconds=600.0, poll_interval_seconds=0.5))

@queue.task(name=name, expires_after=600)
async def work(ctx: TaskContext, again: bool = False) -> None:
    if again and ctx.attempt == 1:
        raise Retry(delay=0.1)

work.submit()
ready()
queue.run()
"""


@pytest.fixture
def queue(newest_postgres_url: str):
    with TaskQueue(newest_postgres_url) as made:
        yield made


def test_a_worker_whose_clock_is_an_hour_off_behaves_the_same(newest_postgres_url: str, queue: TaskQueue):
    names = {"ahead": HOUR, "behind": -HOUR}
    with programs(WORKER, [[newest_postgres_url, name, str(off)] for name, off in names.items()]) as workers:
        for name in names:
            queue.enqueue(name)
            queue.enqueue(name, {"again": True})
            queue.enqueue(name, delay_seconds=0.5)
            queue.enqueue(name, delay_seconds=HOUR / 2)
        for worker in workers:
            worker.go_on()

        for name in names:
            eventually(lambda name=name: queue.count(name=name, state="completed") == 4)
        assert queue.recover_stale_tasks() == 0
        assert {each.alive for each in queue.workers()} == {True}

    assert [task.name for task in queue.list(state="pending")] == ["behind", "ahead"]
    for task in queue.list(state="completed"):
        assert happened_in_order(task), task


def happened_in_order(task: Task) -> bool:
    """Whether every time of it is the same clock's, give or take."""
    assert task.started_at
    assert task.completed_at
    due, little = task.scheduled_at, timedelta(minutes=5)
    return task.created_at <= due <= task.started_at <= task.completed_at <= task.created_at + little
