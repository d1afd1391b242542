"""A transactional task has its effect exactly once, wherever its worker is killed.

The task writes two rows through `ctx.connection`, submits one task and then two at once, and returns a result.  Its
process is killed before and after every statement of the attempt; for COMMIT also while it is under way, and when it
has taken effect but its answer was not read.  Which statements there are is found out by a run without a kill, so that
a new one is covered by itself.  The process is a worker, or the child process of one for `isolation="process"`.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tasklib import TaskQueue
from tests.fixtures import python
from tests.fixtures.backends import libpq_url
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.usefixtures("ledger")
ROOT = Path(__file__).parents[2]
PATIENCE = 180.0
VICTIM_TIMEOUT = 2.0
FINISHER_TIMEOUT = 1.0
"""After so many seconds of silence a worker is gone; that of the victims leaves room for a machine that is busy."""

ESSENTIAL = [
    "INSERT-INTO-ledger",
    "insert_task",
    "SAVEPOINT-tasklib",
    "insert_tasks",
    "RELEASE-SAVEPOINT-tasklib",
    "INSERT-INTO-ledger",
    "complete_tasks",
    "COMMIT",
]
OF = "name IN ('receipt', 'letter') AND kwargs ->> 'of' = '{}'"
TABLES = "CREATE TABLE ledger (task text, entry text, attempt integer)", "CREATE TABLE completions (task text)"
SQLITE_TRIGGER = """
    CREATE TRIGGER note_completion AFTER UPDATE OF state ON tasks WHEN new.state = 'completed'
    BEGIN INSERT INTO completions VALUES (new.name); END
"""
POSTGRES_TRIGGER = """
    CREATE FUNCTION note_completion() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE format('INSERT INTO %I.completions VALUES ($1)', tg_table_schema) USING new.name;
        RETURN new;
    END $$;
    CREATE TRIGGER note_completion AFTER UPDATE OF state ON tasks FOR EACH ROW WHEN (new.state = 'completed')
    EXECUTE FUNCTION note_completion()
"""


@pytest.mark.backends("sqlite-file", "postgres-newest")
@pytest.mark.parametrize("turned", [False, pytest.param(True, marks=pytest.mark.chaos)])
def test_a_worker_killed_at_any_statement_leaves_the_effect_exactly_once(database_url: str, turned: bool) -> None:
    # A plain function on SQLite and a coroutine on PostgreSQL; the long form also the other way round.
    kind = "def" if database_url.startswith("sqlite") is not turned else "async def"
    with closing(prepare(database_url)) as database:
        killed = run_script("kill", database_url, kind)
        points = list(killed)

        assert killed == dict.fromkeys(points, signal.SIGKILL)
        assert [name for name in statements_of(points) if name in ESSENTIAL] == ESSENTIAL

        with finishing_worker(database_url, kind, points):
            eventually(lambda: are_completed(database, points), PATIENCE)

        assert_done_once(database, points)


@pytest.mark.backends("sqlite-file")
def test_a_child_process_killed_at_any_statement_leaves_the_effect_exactly_once(
    database_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with closing(prepare(database_url)) as database, TaskQueue(database_url) as queue:
        # After one statement is before the next: a child has nothing else to do, and takes a while to start.
        points = [p for p in run_script("list", database_url, "def") if "-before-" in p or is_commit(p)]
        ids = {point: queue.enqueue(point) for point in points}

        with finishing_worker(database_url, "process", points):
            eventually(lambda: are_completed(database, points), PATIENCE)

        assert_done_once(database, points)
        log = capfd.readouterr().err
        refused = {point for point in points if f"late write refused: task {ids[point]} " in log}
        assert {point for point in points if took_effect(point)} <= refused <= {p for p in points if is_commit(p)}


def assert_done_once(database: Any, points: list[str]) -> None:
    """Everything happened, in one attempt: the second, unless the first was committed when it was killed."""
    found = {point: what_happened(database, point) for point in points}
    assert found == {point: once(point, in_attempt=found[point]["attempts"]) for point in points}
    known = [point for point in points if "-during-" not in point]
    assert {point: found[point]["attempts"] for point in known} == {
        point: 1 if took_effect(point) else 2 for point in known
    }
    assert ask(database, "SELECT count(*) FROM tasks WHERE state = 'running'") == [(0,)]


def took_effect(point: str) -> bool:
    """Whether the attempt killed there was committed, so that it is the only one."""
    return is_commit(point) and ("-sent-" in point or "-after-" in point)


def is_commit(point: str) -> bool:
    return point.endswith("-COMMIT")


def what_happened(database: Any, name: str) -> dict[str, Any]:
    """Everything the database knows of the task of that name and of what it did."""
    [[state, attempts, result]] = ask(database, f"SELECT state, attempts, result FROM tasks WHERE name = '{name}'")
    children = ask(database, f"SELECT name, kwargs FROM tasks WHERE {OF.format(name)} ORDER BY seq")
    return {
        "state": state,
        "attempts": attempts,
        "result": as_json(result),
        "ledger": ask(database, f"SELECT entry, attempt FROM ledger WHERE task = '{name}'"),
        "completions": ask(database, f"SELECT task FROM completions WHERE task = '{name}'"),
        "children": [(child, as_json(kwargs).get("page")) for child, kwargs in children],
    }


def once(name: str, *, in_attempt: int) -> dict[str, Any]:
    """All of it, in that attempt only."""
    return {
        "state": "completed",
        "attempts": in_attempt,
        "result": {"value": {"attempt": in_attempt}},
        "ledger": [("debit", in_attempt), ("credit", in_attempt)],
        "completions": [(name,)],
        "children": [("receipt", None), ("letter", 1), ("letter", 2)],
    }


def are_completed(database: Any, points: list[str]) -> bool:
    [[count]] = ask(database, "SELECT count(*) FROM tasks WHERE name LIKE '__-%' AND state = 'completed'")
    return bool(count == len(points))


def statements_of(points: list[str]) -> list[str]:
    return [point.partition("-before-")[2] for point in points if "-before-" in point]


def prepare(url: str) -> Any:
    """Make the tables, and a trigger that notes every completion; returns a connection to look at them."""
    with TaskQueue(url) as queue:
        queue.migrate()
    is_sqlite = url.startswith("sqlite")
    if is_sqlite:
        connection: Any = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=PATIENCE)
    else:
        connection = psycopg.connect(libpq_url(url), autocommit=True)
    for statement in (*TABLES, SQLITE_TRIGGER if is_sqlite else POSTGRES_TRIGGER):
        connection.execute(statement)
    return connection


def ask(database: Any, query: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = database.execute(query).fetchall()
    return found


def as_json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def run_script(command: str, url: str, kind: str) -> Any:
    """What the script answers."""
    with start_script(command, stdout=subprocess.PIPE, **environment(url, kind, VICTIM_TIMEOUT)) as process:
        answer, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    return json.loads(answer)


@contextmanager
def finishing_worker(url: str, kind: str, names: list[str]) -> Iterator[None]:
    """A worker process that knows all the tasks, and that stops in order at the end."""
    settings = environment(url, kind, FINISHER_TIMEOUT)
    with start_script("finish", EXACTLY_ONCE_NAMES=json.dumps(names), **settings) as process:
        try:
            yield
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def start_script(command: str, stdout: int | None = None, **variables: str) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-m", "tests.programs.exactly_once_worker", command]
    return python.popen(arguments, cwd=ROOT, stdout=stdout, text=True, env=os.environ | variables)


def environment(url: str, kind: str, timeout: float) -> dict[str, str]:
    return {
        "EXACTLY_ONCE_URL": url,
        "EXACTLY_ONCE_KIND": kind,
        "TASKLIB_WORKER_TIMEOUT_SECONDS": str(timeout),
    }
