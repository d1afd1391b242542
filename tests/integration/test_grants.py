"""A role that was given what its duty needs can do that, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from tasklib import PermissionDenied, TaskLibError, TaskQueue
from tasklib.cli.main import main
from tasklib.storage.operations import tokens
from tasklib.storage.postgres.grants import RIGHTS, Duty
from tests.fixtures.backends import libpq_url

pytestmark = pytest.mark.backends("postgres-newest")
DENIED = {
    "producer": [
        "SELECT kwargs FROM tasks", "UPDATE tasks SET priority = 1", "DELETE FROM tasks",
        "SELECT * FROM tasklib_tokens",
        "SELECT * FROM tasklib_audit", "UPDATE tasklib_controls SET paused_at = now()", "SELECT result FROM tasks",
    ],
    "worker": [
        "DELETE FROM tasks", "SELECT * FROM tasklib_tokens", "SELECT * FROM tasklib_audit", "TRUNCATE tasks",
        "INSERT INTO tasklib_controls (name) VALUES ('x')", "SELECT * FROM tasklib_idempotency",
    ],
    "viewer": [
        "INSERT INTO tasks (name) VALUES ('x')", "UPDATE tasks SET priority = 1", "DELETE FROM tasks",
        "SELECT * FROM tasklib_tokens", "SELECT * FROM tasklib_audit", "DELETE FROM tasklib_schedules",
    ],
    "admin": [
        "UPDATE tasklib_audit SET actor = 'nobody'", "DELETE FROM tasklib_audit", "DROP TABLE tasks", "TRUNCATE tasks",
        "CREATE TABLE mine (x int)", "DELETE FROM tasklib_migrations",
    ],
}  # fmt: skip


@pytest.fixture
def role(request: pytest.FixtureRequest, database_url: str) -> Iterator[str]:
    """A new role without any rights."""
    name = f"r_{uuid4().hex[:12]}"
    with psycopg.connect(libpq_url(database_url), autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {name} LOGIN")
        yield name
        owner.execute(f"DROP OWNED BY {name}")
        owner.execute(f"DROP ROLE {name}")


def as_role(url: str, role: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{role}@{host}").geturl()


def queue_of(database_url: str, role: str, duty: str) -> TaskQueue:
    assert main(["grants", duty, role, "--apply", "--database-url", database_url]) == 0
    return TaskQueue(as_role(database_url, role))


@pytest.mark.parametrize("duty", DENIED)
def test_what_each_cannot_do(database_url: str, role: str, duty: str) -> None:
    queue_of(database_url, role, duty).close()
    with psycopg.connect(libpq_url(as_role(database_url, role)), autocommit=True) as connection:
        for statement in DENIED[duty]:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


def test_every_table_is_somebodys(database_url: str) -> None:
    with TaskQueue(database_url) as queue:
        queue.count()
    with psycopg.connect(libpq_url(database_url)) as connection:
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema").fetchall()
    assert {name for (name,) in rows} == set(RIGHTS[Duty.ADMIN])


def test_a_producer_submits_also_unique_tasks(database_url: str, role: str) -> None:
    with queue_of(database_url, role, "producer") as queue:
        queue.enqueue("job", {"n": 1})
        first = queue.enqueue("job", unique_key="k")
        assert queue.enqueue("job", unique_key="k") == first
        with pytest.raises(PermissionDenied):
            queue.get(first)


def test_a_worker_runs_tasks_and_their_schedules(database_url: str, role: str) -> None:
    with TaskQueue(database_url) as owner:
        owner.enqueue("job")
        owner.enqueue("fails")
    with queue_of(database_url, role, "worker") as queue:

        @queue.task(name="job")
        def job() -> None: ...

        @queue.task(name="fails", max_retries=0)
        def fails() -> None:
            raise ValueError

        assert queue.process_batch() == 2
        assert (queue.stats().completed, queue.stats().failed) == (1, 1)
        queue.add_schedule("s", task="job", every=60)
        queue.fire_schedules()


def test_a_viewer_looks_at_everything(database_url: str, role: str) -> None:
    with queue_of(database_url, role, "viewer") as queue:
        assert (queue.stats().total, queue.list(), list(queue.workers()), queue.pauses()) == (0, [], [], [])
        with pytest.raises(PermissionDenied):
            queue.pause()


def test_an_admin_acts_and_makes_tokens(database_url: str, role: str) -> None:
    with queue_of(database_url, role, "admin") as queue:
        task_id = queue.enqueue("job")
        queue.pause()
        queue.resume()
        queue.cancel(task_id)
        queue.delete(task_id)
        made: Any = queue.database.run(lambda: tokens.create_token("ada", tokens.Role.VIEWER, now=None))
        assert made.secret


def test_without_apply_they_are_only_printed(database_url: str, role: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grants", "viewer", role, "--database-url", database_url]) == 0
    assert "GRANT SELECT ON" in capsys.readouterr().out
    with TaskQueue(as_role(database_url, role)) as queue, pytest.raises(TaskLibError):
        queue.list()
    assert main(["grants", "king", role, "--database-url", database_url]) == 2
