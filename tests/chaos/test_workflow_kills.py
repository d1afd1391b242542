"""A workflow killed before any of its statements ends exactly as one that was not.

It books in its own database, waits for an event, maps and runs children, submits a flow in a step's transaction, and
books again.  One worker for each statement is killed there; then one worker finishes what all of them left behind.  The
same with a saga that fails, and what undoes it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tasklib import TaskQueue
from tests.fixtures import python
from tests.fixtures.backends import libpq_url

pytestmark = pytest.mark.usefixtures("ledger")
ROOT = Path(__file__).parents[2]
PATIENCE = 280.0


@pytest.mark.backends("sqlite-file", "postgres-newest")
@pytest.mark.parametrize("every", [97, pytest.param(1, marks=pytest.mark.chaos)])
def test_a_workflow_killed_at_any_statement_happens_exactly_once(database_url: str, every: int) -> None:
    kind = "def" if database_url.startswith("sqlite") else "async def"
    with TaskQueue(database_url) as queue, closing(connect(database_url)) as database:
        queue.migrate()
        database.execute("CREATE TABLE ledger (task text, entry text)")
        points = json.loads(run_script("kill", database_url, kind, every))
        assert len(points) > 2
        run_script("finish", database_url, kind, every, points)

        for point in points:
            name = f"workflow-{point}"
            (task,) = queue.list(name=name)
            assert (task.state, task.result) == ("completed", {"value": 14}), (name, task.error)
            booked = sorted(row[0] for row in ask(database, f"SELECT entry FROM ledger WHERE task = '{name}'"))
            assert booked == ["after 4", "credit", "debit"], name
            children = queue.list(name=f"child-{point}")
            assert sorted(child.result["value"] for child in children if child.result) == [0, 1, 4, 4, 9], name
        assert ask(database, "SELECT count(*) FROM tasklib_tallies") == [(0,)]
        assert ask(database, "SELECT count(*) FROM tasks WHERE state <> 'completed'") == [(0,)]


@pytest.mark.backends("sqlite-file", "postgres-newest")
@pytest.mark.parametrize("every", [37, pytest.param(1, marks=pytest.mark.chaos)])
def test_a_saga_killed_at_any_statement_is_undone_exactly_once(database_url: str, every: int) -> None:
    """Every third one is cancelled before it goes on: then what it had begun is undone, and nothing else."""
    kind = "def" if database_url.startswith("sqlite") else "async def"
    serial = "INTEGER PRIMARY KEY" if kind == "def" else "bigserial PRIMARY KEY"
    with TaskQueue(database_url) as queue, closing(connect(database_url)) as database:
        queue.migrate()
        database.execute(f"CREATE TABLE ledger (id {serial}, task text, entry text)")
        points = json.loads(run_script("kill", database_url, kind, every, program="saga_worker"))
        assert len(points) > 2
        run_script("finish", database_url, kind, every, points, program="saga_worker")

        for point in points:
            name = f"saga-{point}"
            (task,) = queue.list(name=name)
            assert task.state in ("failed", "cancelled"), (name, task.error)
            booked = [row[0] for row in ask(database, f"SELECT entry FROM ledger WHERE task = '{name}' ORDER BY id")]
            undone = [entry.removeprefix("undo ") for entry in booked if entry.startswith("undo ")]
            bound = ["reserve", "book", "charge"]
            bound = bound if task.state == "failed" else bound[: len(undone)]
            assert undone == bound[::-1], (name, booked)
            assert set(booked) <= {*bound, *(f"undo {each}" for each in bound)}, (name, booked)
            assert booked.count("book") == bound.count("book"), (name, booked)
            undos = queue.list(name=f"undo-{point}")
            assert sorted(each.kwargs["entry"] for each in undos) == sorted(bound), name
        assert ask(database, "SELECT count(*) FROM tasklib_tallies") == [(0,)]


def connect(url: str) -> Any:
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=180)
    return psycopg.connect(libpq_url(url), autocommit=True)


def ask(database: Any, query: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = database.execute(query).fetchall()
    return found


def run_script(
    command: str, url: str, kind: str, every: int, points: list[int] | None = None, *, program: str = "workflow_worker"
) -> str:
    variables = {
        "WORKFLOW_URL": url,
        "WORKFLOW_KIND": kind,
        "WORKFLOW_EVERY": str(every),
        "WORKFLOW_POINTS": json.dumps(points),
        "TASKLIB_WORKER_TIMEOUT_SECONDS": "1.5",
        "TASKLIB_HEARTBEAT_INTERVAL_SECONDS": "0.3",
    }
    done = python.run(
        [sys.executable, "-m", f"tests.programs.{program}", command],
        cwd=ROOT,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    return done.stdout
