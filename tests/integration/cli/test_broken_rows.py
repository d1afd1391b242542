"""Rows and schedules that cannot be read are shown as such, and no command fails because of one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg

from tasklib import TaskQueue
from tasklib.cli.main import main
from tests.fixtures.backends import libpq_url
from tests.integration.cli.conftest import CommandLine


def write(url: str, text: str) -> None:
    """Change a table as another program would."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.execute(text)
        connection.close()
    else:
        with psycopg.connect(libpq_url(url), autocommit=True) as connection:
            connection.execute(text.encode())


def test_what_cannot_be_read_is_said_and_left_behind_by_copy(
    tasklib: CommandLine, queue: TaskQueue, database_url: str, tmp_path: Path
) -> None:
    good = queue.enqueue("job", {"large": "x" * 5000})
    for name in ("good", "bad"):
        queue.add_schedule(name, task="job", every=60)
    write(database_url, f"INSERT INTO tasks (name, kwargs) VALUES ('job', '{'[' * 500}{']' * 500}')")
    write(database_url, "UPDATE tasklib_schedules SET plan = '{\"every\": 60, \"novel\": 1}' WHERE name = 'bad'")

    bad, first = tasklib.json("list")["tasks"]
    assert (first["id"], first["truncated"], bad["truncated"]) == (str(good), ["kwargs"], [])
    assert tasklib.json("show", str(good))["kwargs"] == {"large": "x" * 5000}
    assert "kwargs cannot be read" in bad["unreadable"]
    assert "unreadable" in tasklib.ok("list")
    assert "unreadable" in tasklib.ok("show", bad["id"])
    assert "cannot run" in tasklib.ok("schedules")
    assert "novel" in tasklib.ok("schedules", "show", "bad")
    assert [bool(each["error"]) for each in tasklib.json("schedules")["schedules"]] == [True, False]
    target = f"sqlite:///{tmp_path / 'target.db'}"
    assert main(["copy", database_url, target]) == 0
    with TaskQueue(target) as copied:
        assert ([task.id for task in copied.list()], [each.name for each in copied.schedules()]) == ([good], ["good"])
