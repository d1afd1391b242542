"""A command on a machine whose clock is wrong: on PostgreSQL ages and ends are told by the database's clock."""

from __future__ import annotations

import sys
from uuid import uuid4

import psycopg
import pytest

from tasklib import TaskQueue
from tasklib.storage.operations import workers
from tasklib.storage.operations.workers import Registration
from tests.fixtures import python
from tests.fixtures.backends import libpq_url

# A day ahead before anything of ours is imported.  What asks whether a value is a datetime means the real one.
PROGRAM = """
import datetime, sys, time
import psycopg  # compiled against the real one

real_time, real, day = time.time, datetime.datetime, datetime.timedelta(days=1)
time.time = lambda: real_time() + day.total_seconds()

class Kind(type):
    def __instancecheck__(cls, value):
        return isinstance(value, real)

class Wrong(real, metaclass=Kind):
    @classmethod
    def now(cls, tz=None):
        return real.now(tz) + day

datetime.datetime = Wrong
from tasklib.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.backends("postgres-newest")
def test_a_clock_that_is_wrong_here_changes_nothing(database_url: str) -> None:
    def run(*words: str) -> str:
        command = [sys.executable, "-c", PROGRAM, *words, "--database-url", database_url]
        return python.run(command, capture_output=True, text=True, check=True, timeout=180).stdout

    with TaskQueue(database_url) as queue:
        who = Registration(uuid4(), "w", "host", 1, 600.0, 1, ("job",))
        queue.database.run(lambda: workers.register_worker(who))
        queue.enqueue("job")
        secret = run("token", "create", "short", "--expires", "1h")
        assert secret.startswith("tl_")
        left = "SELECT extract(epoch FROM expires_at - now())::int AS seconds FROM tasklib_tokens"
        with psycopg.connect(libpq_url(database_url)) as connection:
            ((seconds,),) = connection.execute(left).fetchall()
        assert 3000 < seconds <= 3600
    for command in ("workers", "list"):
        shown = run(command)
        assert "24 h" not in shown, shown
        assert "now" in shown or " s ago" in shown, shown
