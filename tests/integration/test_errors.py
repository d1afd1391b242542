"""A database that cannot be used is a clear error with the cause and the cure, and nothing is stored."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest

from tasklib import ConfigurationError, DatabaseUnavailable, PermissionDenied, StorageError, TaskQueue
from tasklib.core.task_id import TaskId
from tasklib.storage.statement import Operation, Statement
from tests.fixtures.backends import libpq_url
from tests.fixtures.disks import unprivileged
from tests.fixtures.queues import FORMS, Face, Form, open_queue
from tests.fixtures.waiting import eventually
from tools.postgres import available, start
from tools.postgres.server import Server

SECRET = "hunter2"


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Form:
    return request.param


def refused(url: str, form: Form = "blocking", **settings: object) -> StorageError:
    """The error that using a queue on this URL raises, which never tells the password."""
    with pytest.raises(StorageError) as caught, open_queue(url, form, **settings) as queue:
        queue.enqueue("job")
    assert SECRET not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("url", ["mysql://localhost/app", "tasks.db", "sqlite:tasks.db", "sqlite://tasks.db", ""])
def test_a_wrong_url_is_refused_with_the_right_forms(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.delenv("TASKLIB_DATABASE_URL", raising=False)

    with pytest.raises(ConfigurationError, match=r"sqlite:///"):
        TaskQueue(url)


@pytest.mark.parametrize("query", ["mode=ro", "timeout=5&immutable=1", "b.db"])
def test_a_parameter_that_nothing_heeds_is_refused(tmp_path: Path, query: str) -> None:
    with pytest.raises(ConfigurationError, match="%3F"):
        TaskQueue(f"sqlite:///{tmp_path}/a?{query}")
    assert not list(tmp_path.iterdir())


def test_what_sqlalchemy_says_of_pythons_driver_is_left_aside(tmp_path: Path) -> None:
    with TaskQueue(f"sqlite:///{tmp_path}/a.db?timeout=5&check_same_thread=False") as queue:
        assert queue.count() == 0


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path, form: Form):
    error = refused(f"sqlite:///{tmp_path}/missing/tasks.db", form)

    assert isinstance(error, DatabaseUnavailable)
    assert f"{tmp_path}/missing" in str(error)


def test_a_folder_is_no_database(tmp_path: Path, form: Form):
    error = refused(f"sqlite:///{tmp_path}", form)

    assert isinstance(error, DatabaseUnavailable)
    assert str(tmp_path) in str(error)


def test_a_file_that_is_no_database_is_not_touched(tmp_path: Path, form: Form):
    file = tmp_path / "notes.txt"
    file.write_text("my notes\n" * 1000)

    error = refused(f"sqlite:///{file}", form)

    assert "notes.txt" in str(error)
    assert "not a database" in str(error)
    assert file.read_text() == "my notes\n" * 1000


def test_a_file_that_may_only_be_read_is_told_as_that(form: Form):
    with open_queue("sqlite:///:memory:", form) as queue:
        queue.count()  # everything is imported before this process becomes somebody else
    with unprivileged() as folder:
        url = f"sqlite:///{folder}/tasks.db"
        with open_queue(url, form) as queue:
            queue.enqueue("job")
        os.chmod(folder / "tasks.db", 0o444)

        error = refused(url, form)

        assert isinstance(error, PermissionDenied)
        assert "permissions of file and folder" in str(error)
        os.chmod(folder / "tasks.db", 0o644)
        with open_queue(url, form) as queue:
            assert queue.count() == 1


def test_a_folder_that_may_only_be_read_is_told_as_that(form: Form):
    with open_queue("sqlite:///:memory:", form) as queue:
        queue.count()
    with unprivileged() as folder:
        os.chmod(folder, 0o555)

        error = refused(f"sqlite:///{folder}/tasks.db", form)

        assert isinstance(error, PermissionDenied | DatabaseUnavailable)
        assert "folder" in str(error)
        assert os.listdir(folder) == []
        os.chmod(folder, 0o755)


def test_a_server_that_does_not_answer_is_named(form: Form):
    error = refused(f"postgresql://ann:{SECRET}@127.0.0.1:1/app", form)

    assert isinstance(error, DatabaseUnavailable)
    assert "ann:***@127.0.0.1:1/app" in str(error)
    assert "refused" in str(error)


def test_a_host_that_does_not_exist_is_named(form: Form):
    error = refused(f"postgresql://ann:{SECRET}@no-such-host.invalid/app", form)

    assert isinstance(error, DatabaseUnavailable)
    assert "no-such-host.invalid" in str(error)


def test_a_role_or_a_database_that_does_not_exist_is_named(newest_postgres_url: str, form: Form):
    parts = urlsplit(newest_postgres_url)
    nobody = urlunsplit(parts._replace(netloc=f"nobody_here@{parts.hostname}:{parts.port}"))
    nowhere = urlunsplit(parts._replace(path="/nowhere"))

    for url, name in ((nobody, "nobody_here"), (nowhere, "nowhere")):
        error = refused(url, form)
        assert isinstance(error, DatabaseUnavailable)
        assert f'"{name}" does not exist' in str(error)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of this module's own, which asks the role `ann` for her password."""
    installation = max(available(), key=lambda found: found.version)
    with start(installation) as server:
        rules = server.data / "pg_hba.conf"
        rules.write_text("host all ann all scram-sha-256\n" + rules.read_text())
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("CREATE ROLE ann LOGIN PASSWORD 'right'")
            connection.execute("CREATE SCHEMA ann AUTHORIZATION ann")
        yield server


def test_a_wrong_password_is_told_and_never_shown(server: Server, form: Form):
    url = f"postgresql://ann:{{}}@127.0.0.1:{server.port}/postgres?schema=ann"

    error = refused(url.format(SECRET), form)

    assert isinstance(error, DatabaseUnavailable)
    assert 'password authentication failed for user "ann"' in str(error)
    with open_queue(url.format("right"), form) as queue:
        assert queue.enqueue("job").created


def test_a_server_that_goes_away_is_an_error_until_it_is_back(server: Server, form: Form):
    with open_queue(f"{server.url}?schema=away_{form}", form, connect_timeout_seconds=2.0) as queue:
        before = queue.enqueue("job")
        server.halt()
        for use in (queue.count, lambda: queue.enqueue("lost")):
            with pytest.raises(DatabaseUnavailable):
                use()
        server.restart()

        after = eventually(lambda: enqueued(queue))

        assert [task.id for task in queue.list()] == [after, before]


def enqueued(queue: Face) -> TaskId | None:
    """The id, or None while a busy machine has not answered a new connection in time."""
    try:
        return queue.enqueue("job")
    except DatabaseUnavailable:
        return None


def test_connections_that_were_cut_are_replaced_without_an_error(newest_postgres_url: str, form: Form):
    """As after a restart of the server: every connection is broken, not only the one that is used next."""
    with open_queue(newest_postgres_url, form) as queue:
        queue.count()
        for _ in range(3):
            _use_many_connections(queue)
            cut = queue.sql(
                "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'tasklib'"
            )
            assert cut[0]["count"] >= 3
            assert queue.enqueue("job").created
        assert queue.count() == 3


def _use_many_connections(queue: Face) -> None:
    """Let the pool grow: several operations wait for a lock at the same time."""
    plain = queue.plain
    with psycopg.connect(libpq_url(queue.url)) as other:
        other.execute("LOCK TABLE tasklib_controls IN ACCESS EXCLUSIVE MODE")
        waiting = "SELECT count(*) AS count FROM pg_locks WHERE NOT granted AND relation = 'tasklib_controls'::regclass"
        with ThreadPoolExecutor(4) as threads:
            if queue.form == "blocking":
                works = [threads.submit(plain.is_paused) for _ in range(4)]
            else:
                works = [threads.submit(queue.run_coroutine, _all_paused(plain))]
            eventually(lambda: queue.sql(waiting)[0]["count"] == 4)
            other.rollback()
            assert not any(work.result(60) for work in works)


async def _all_paused(plain: TaskQueue) -> bool:
    return all(await asyncio.gather(*(plain.ais_paused() for _ in range(4))))


def test_a_value_that_a_column_refuses_names_the_column(newest_postgres_url: str):
    values = {"id": str(uuid4()), "name": "job", "kwargs": "{}", "tags": "{}", "max_retries": 0, "priority": 0}
    others = ("run_at", "now", "delay", "concurrency_key", "headers", "expires_at", "expires_in")

    def store() -> Operation[None]:
        yield Statement("insert_task", values | dict.fromkeys(others) | {"timeout_seconds": -5.0})

    with TaskQueue(newest_postgres_url) as queue:
        with pytest.raises(StorageError, match=r"column timeout_seconds of table tasks: .*tasks_timeout_positive"):
            queue.database.run(store)
        assert queue.count() == 0
