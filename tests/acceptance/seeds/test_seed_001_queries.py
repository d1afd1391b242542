"""Seed 001: the pick-up query and the clean-up, as printed on PostgreSQL, in the form for SQLite beside it."""

from __future__ import annotations

import shlex
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tasklib import ManualClock, TaskQueue
from tests.acceptance.seeds import statements
from tests.acceptance.seeds.examples import check_pickup
from tests.acceptance.seeds.statements import Printed
from tests.acceptance.seeds.support import OpenShell, url_of
from tests.fixtures.backends import libpq_url
from tools.postgres import available


@pytest.mark.parametrize("printed", [statements.PICKUP], ids=["pickup"])
def test_block_08_pickup_query(printed: Printed, queue: TaskQueue, shell: OpenShell) -> None:
    """Indexes (Performance): the query of every poll finds the due task of the highest priority."""
    check_pickup(printed, queue, shell(queue))


def test_block_09_clean_up(queue: TaskQueue, shell: OpenShell) -> None:
    """Cleanup Policy: completed tasks go after 30 days, failed ones after 90, and nothing else."""
    outside = shell(queue)
    kept = _finish_long_ago(queue, completed_days=29, failed_days=89)
    _finish_long_ago(queue, completed_days=31, failed_days=91)

    completed = outside.choose(postgres=statements.CLEAN_COMPLETED.postgres, sqlite=statements.CLEAN_COMPLETED.sqlite)
    failed = outside.choose(postgres=statements.CLEAN_FAILED.postgres, sqlite=statements.CLEAN_FAILED.sqlite)

    assert (completed, failed) == ([(1,)], [(1,)])
    assert {task.id for task in queue.list()} == kept


def _finish_long_ago(queue: TaskQueue, *, completed_days: int, failed_days: int) -> set[UUID]:
    """A task that completed and one that failed for good, so many days ago."""

    def fail(payload: Any) -> None:
        raise ValueError("no")

    queue.register_handler("good", lambda payload: None)
    queue.register_handler("bad", fail)
    ids = set[UUID]()
    for name, days in (("good", completed_days), ("bad", failed_days)):
        queue.clock = ManualClock(datetime.now(UTC) - timedelta(days=days))
        ids.add(queue.enqueue(name, max_attempts=1).id)
        assert queue.process_batch() == 1
    queue.unregister_handler("bad")
    queue.unregister_handler("good")
    return ids


def test_block_10_clean_up_by_cron(queue: TaskQueue, shell: OpenShell) -> None:
    """Cleanup Policy: the line of the crontab, at two in the morning."""
    outside = shell(queue)
    _finish_long_ago(queue, completed_days=31, failed_days=91)
    line = statements.CRON.postgres if outside.dialect == "postgres" else statements.CRON.sqlite

    minute, hour, _, _, _, program, *arguments = shlex.split(line)
    assert (minute, hour) == ("0", "2")
    if program == "psql":
        psql = [str(available()[0].bindir / program)]
        given = [libpq_url(url_of(queue)) if argument == "mydb" else argument for argument in arguments]
        subprocess.run(psql + given, check=True, timeout=180, stdout=subprocess.DEVNULL)
    else:  # the sqlite3 program may not be installed; its last argument is what it would run
        outside.run(arguments[-1])

    assert [task.name for task in queue.list()] == ["bad"]
