"""stats, types, pause, resume, workers, migrate and version."""

from __future__ import annotations

import platform
import sqlite3
from pathlib import Path
from uuid import uuid4

import pytest

import tasklib as package
from tasklib import TaskQueue
from tasklib.storage.operations import workers
from tasklib.storage.operations.workers import Registration
from tests.integration.cli.conftest import CommandLine

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


def register(queue: TaskQueue, *names: str) -> str:
    who = Registration(
        instance=uuid4(), worker_id="w-1", host="box", pid=7, timeout_seconds=30, concurrency=4, names=names
    )
    queue.database.run(lambda: workers.register_worker(who))
    return who.worker_id


def test_stats_count_each_task_once(tasklib: CommandLine, queue: TaskQueue) -> None:
    queue.enqueue("divide", {"a": 1, "b": 1})
    queue.enqueue("divide", {"a": 1, "b": 0})
    queue.process_batch()
    queue.enqueue("job")
    queue.enqueue("job", delay_seconds=1000)

    said = dict(line.rsplit(maxsplit=1) for line in tasklib.ok("stats").splitlines()[1:11])

    assert said == {
        "pending": "1",
        "delayed": "1",
        "waiting": "0",
        "running": "0",
        "retrying": "1",
        "completed": "1",
        "failed": "0",
        "cancelled": "0",
        "buried": "0",
        "in all": "4",
    }
    stats = tasklib.json("stats")
    assert (stats["total"], stats["pending"], stats["delayed"], stats["failed"], stats["retrying"]) == (4, 2, 1, 1, 1)
    assert {status: count for status, count in stats["by_name"]["job"].items() if count} == {"pending": 2, "delayed": 1}
    assert (stats["pauses"], stats["workers_alive"]) == ([], 0)


def test_scale_says_how_many_workers_it_takes(tasklib: CommandLine, queue: TaskQueue) -> None:
    for _ in range(3):
        queue.enqueue("resize")
    queue.enqueue("mail")

    found = tasklib.json("scale", "resize", "--objective", "1", "--concurrency", "2")
    assert (found["due"], found["slots"], found["workers"], found["workers_alive"]) == (3, 3, 2, 0)
    said = tasklib.ok("scale")
    assert "Workers needed: 2, each with 1 at once, to run 4 due and 0 running tasks within 1 min. Alive: 0." in said
    assert "--objective" in tasklib.run("scale", "--objective", "0").err


def test_types_are_what_is_stored_and_what_workers_know(tasklib: CommandLine, queue: TaskQueue) -> None:
    register(queue, "known")
    queue.enqueue("orphan")
    queue.pause("known")

    said = tasklib.ok("types")
    by_name = {entry["name"]: entry for entry in tasklib.json("types")["types"]}

    assert "Waiting, but no live worker takes: orphan\n" in said
    assert [line.split()[0] for line in said.splitlines()[:3]] == ["NAME", "known", "orphan"]
    assert (by_name["orphan"]["pending"], by_name["orphan"]["workers"], by_name["orphan"]["paused"]) == (1, 0, False)
    assert (by_name["known"]["pending"], by_name["known"]["workers"], by_name["known"]["paused"]) == (0, 1, True)


def test_types_of_nothing_say_what_to_do(tasklib: CommandLine, queue: TaskQueue) -> None:
    queue.migrate()
    assert tasklib.ok("types").startswith("No task names yet")
    assert tasklib.json("types") == {"types": []}


def test_workers_are_shown_with_what_they_run(tasklib: CommandLine, queue: TaskQueue) -> None:
    queue.migrate()
    assert tasklib.ok("workers") == "No workers. Start one: tasklib worker app.tasks\n"
    register(queue, "a", "b")

    header, line = tasklib.ok("workers").splitlines()
    (worker,) = tasklib.json("workers")["workers"]

    assert header.startswith("WORKER")
    assert line.split()[:3] == ["w-1", "alive", "0/4"]
    assert line.rstrip().endswith("a, b")
    assert (worker["worker_id"], worker["host"], worker["pid"], worker["alive"]) == ("w-1", "box", 7, True)
    assert worker["names"] == ["a", "b"]
    assert "Workers alive: 1" in tasklib.ok("stats")


def test_a_pause_is_stored_with_its_reason_until_resumed(tasklib: CommandLine, queue: TaskQueue) -> None:
    said = tasklib.ok("pause", "send_email", "--reason", "the mail server is down")
    assert said.startswith("Tasks named send_email are paused since ")
    assert said.endswith(": the mail server is down. Go on with: tasklib resume send_email\n")
    assert queue.is_paused("send_email")
    assert not queue.is_paused("job")

    (pause,) = tasklib.json("pause", "send_email")["pauses"]
    assert pause["name"] == "send_email"
    assert pause["since"].endswith("Z")
    assert "send_email are paused" in tasklib.ok("stats")

    assert tasklib.ok("resume", "send_email") == "Tasks named send_email may start again.\n"
    assert tasklib.ok("resume", "send_email") == "Tasks named send_email were not paused.\n"
    assert not queue.is_paused("send_email")


def test_the_whole_queue_can_be_paused(tasklib: CommandLine, queue: TaskQueue) -> None:
    assert tasklib.ok("pause").startswith("The whole queue is paused since ")
    assert queue.is_paused()
    assert tasklib.json("resume") == {"resumed": True, "pauses": []}
    assert tasklib.json("resume") == {"resumed": False, "pauses": []}


@pytest.mark.new_schema
def test_migrate_creates_the_tables_once(tasklib: CommandLine) -> None:
    assert tasklib.run("migrate", "--check").code == 3
    first = tasklib.json("migrate")
    assert first["applied"][0] == "0001_initial"
    assert tasklib.json("migrate") == {"database": first["database"], "applied": []}
    assert tasklib.ok("migrate").endswith(" is up to date.\n")
    assert tasklib.ok("migrate", "--check").endswith(" is up to date.\n")


@pytest.mark.backends("sqlite-file")
def test_a_check_creates_nothing(tasklib: CommandLine, tmp_path: Path) -> None:
    assert "create it by: tasklib migrate" in tasklib.fails(3, "migrate", "--check")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.backends("sqlite-file")
def test_version(tasklib: CommandLine) -> None:
    assert tasklib.ok("version").startswith(f"tasklib {package.__version__} (python {platform.python_version()}, ")
    assert tasklib.json("version")["sqlite"] == sqlite3.sqlite_version
