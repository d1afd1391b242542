"""What people type and mean: a wrong name, one of two timeouts, part of an id, a pattern of names."""

from __future__ import annotations

import re
import subprocess
import sys
from uuid import UUID

import pytest

from tasklib import TaskQueue
from tests.fixtures import python
from tests.fixtures.terminal import Terminal
from tests.fixtures.waiting import eventually
from tests.integration.cli.conftest import CommandLine
from tests.programs.processes import working

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


def test_a_name_that_no_worker_knows_is_said(tasklib: CommandLine, queue: TaskQueue) -> None:
    """When somebody waits for it; else where a worker is there that does not know it."""
    said = tasklib.fails(5, "submit", "divied", "a=1", "b=1", "--wait-timeout", "10ms")
    assert said.endswith("no worker is alive, so divied does not run yet; start one: tasklib worker app.tasks")
    assert tasklib.run("submit", "divied").err == ""

    with working(queue):
        eventually(lambda: any(worker.alive for worker in queue.workers()))
        said = tasklib.fails(5, "submit", "divied", "--wait-timeout", "10ms")
        assert said.endswith("no live worker knows divied, so it waits until one does; did you mean divide?")
        assert "they know divide" in tasklib.run("submit", "something-else").err
        assert tasklib.run("submit", "divide", "a=1", "b=1", "--wait").err == ""


def test_waiting_without_end_for_a_name_that_no_worker_knows_says_so_at_once(tasklib: CommandLine) -> None:
    command = [sys.executable, "-m", "tasklib", "submit", "job", "--wait", "--database-url", tasklib.url]
    with python.popen(command, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline().startswith("note: no worker is alive, so job does not run yet; start one:")
        waiting.kill()


@pytest.mark.backends("sqlite-file")  # no statement differs
def test_streams_that_are_closed_lead_nowhere(tasklib: CommandLine, queue: TaskQueue) -> None:
    """As where an init script starts a command."""
    command = ["sh", "-c", '"$0" -m tasklib submit job --database-url "$1" <&- >&- 2>&-', sys.executable, tasklib.url]
    assert subprocess.run(command, check=False).returncode == 0
    assert queue.count() == 1


def test_a_task_is_not_submitted_to_a_database_that_ends_with_the_command(tasklib: CommandLine) -> None:
    for url in ("sqlite:///:memory:", "sqlite://"):
        tasklib.url = url
        said = tasklib.fails(2, "submit", "job")
        assert f"{url} is in the memory of this command" in said
        assert "sqlite:///tasks.db" in said


def test_the_two_timeouts_cannot_be_confused(tasklib: CommandLine, queue: TaskQueue) -> None:
    for waiting in (["--wait"], ["--wait-timeout", "1s"], ["--task-timeout", "1s"]):
        said = tasklib.fails(2, "submit", "job", "--timeout", "5s", *waiting)
        assert "--task-timeout for how long an attempt may take" in said
        assert "--wait-timeout for how long this command waits" in said
    assert queue.count() == 0

    tasklib.ok("submit", "job", "--timeout", "2m")
    tasklib.ok("submit", "job", "--task-timeout", "2m")
    assert [task.timeout_seconds for task in queue.list()] == [120, 120]


def test_an_id_may_be_shortened_wherever_one_is_taken(tasklib: CommandLine, queue: TaskQueue) -> None:
    ids = [
        queue.enqueue("job", id=UUID(text)) for text in (f"0199f1e2-7c3a-7000-8000-00000000{n:02}aa" for n in range(3))
    ]
    other = queue.enqueue("job", id=UUID("0299f1e2-7c3a-7000-8000-0000000001bb"))

    for short in ("0299", "0299f1e2-7C3A", "01bb", "0001bb", "0299f1e2..0001bb", "0299f1e2…01bb", str(other)):
        assert tasklib.json("show", short)["id"] == str(other)
    assert tasklib.json("explain", "0299")["id"] == str(other)
    assert [each["id"] for each in tasklib.json("list", "--before", "02aa")["tasks"]] == [str(ids[1]), str(ids[0])]
    tasklib.ok("priority", "9", "02aa")
    tasklib.ok("cancel", "02aa", "0299")
    tasklib.ok("retry", "02aa")
    tasklib.ok("delete", "01bb")
    assert (queue.get(other), getattr(queue.get(ids[2]), "priority", None)) == (None, 9)

    said = tasklib.fails(2, "show", "0199f1e2")
    assert said.startswith("several tasks have an id like '0199f1e2': ")
    assert said.endswith("give more characters")
    for unknown in ("0399", "ab", "12", "....", "nonsense"):
        assert tasklib.fails(1, "show", unknown).startswith(f"no task has the id {unknown}")


def test_what_a_table_prints_as_id_is_taken_by_every_command(tasklib: CommandLine, queue: TaskQueue) -> None:
    """On a terminal it is short, also for tasks made in one go; to a program it is whole."""
    ids = [str(each) for each in queue.submit_new([queue.new_by_name("job") for _ in range(3)])]
    terminal = Terminal([sys.executable, "-m", "tasklib", "list", "--database-url", tasklib.url])
    assert terminal.wait() == 0

    printed = re.findall(r"[0-9a-f]{8}\.\.[0-9a-f]{6}", terminal.text)

    assert sorted(tasklib.json("show", each)["id"] for each in printed) == sorted(ids)
    assert all(each in tasklib.ok("list") for each in ids)


def test_a_name_may_be_a_pattern(tasklib: CommandLine, queue: TaskQueue) -> None:
    for name in ("call.home", "mail", "call.back", "call.home", "call[1]"):
        queue.enqueue(name)

    def names(*arguments: str) -> list[str]:
        return [each["name"] for each in tasklib.json("list", *arguments)["tasks"]]

    assert names("--name", "call.*") == ["call.home", "call.back", "call.home"]
    assert names("--name", "call[1]") == ["call[1]"]
    assert names("--name", "nobody*") == []
    first = tasklib.json("list", "--name", "call.*", "--limit", "2")
    assert names("--name", "call.*", "--before", first["next"]) == ["call.home"]

    assert tasklib.json("cancel", "--all-matching", "--name", "call.*", "--yes")["count"] == 3
    assert tasklib.json("cleanup", "--older-than", "0s", "--state", "cancelled", "--name", "call.*")["count"] == 3
    assert sorted(task.name for task in queue.list()) == ["call[1]", "mail"]


def test_what_is_not_there_is_said_in_the_words_of_the_command_line(tasklib: CommandLine, queue: TaskQueue) -> None:
    queue.enqueue("job")
    assert tasklib.fails(1, "redrive", "abc") == "no group of errors has the id 'abc'; `tasklib errors` shows them"
    removed = {"key-limit": ("default", "tenant-7"), "budget": ("0", "llm-tokens")}
    for command in ("rate-limit", "concurrency-limit", "key-limit", "budget"):
        said = tasklib.ok(command)
        assert said.startswith(f"No limits. Set one: tasklib {command} ")
        tasklib.ok(*said.split("tasklib ", 1)[1].split())
        tasklib.ok(command, *removed.get(command, ("0", "send_email")))


def test_an_amount_of_memory_says_how_it_is_written(tasklib: CommandLine) -> None:
    for wrong in ("much", "200XB", "0", "-1", "1K G"):
        said = tasklib.fails(2, "worker", "app.tasks", "--memory-limit", wrong)
        assert said.startswith(f"{wrong!r} is not an amount of memory; write 300 or 300M for 300 MiB")


@pytest.mark.backends("sqlite-file")  # no statement differs
def test_a_number_of_no_unit_deletes_nothing(tasklib: CommandLine, queue: TaskQueue) -> None:
    """Days are meant; seconds would delete nearly everything, and make a token that is over at once."""
    queue.migrate()
    said = "'30' has no unit; write 30d for days, 30h for hours or 30s for seconds"
    assert tasklib.fails(2, "cleanup", "--older-than", "30") == said
    assert tasklib.fails(2, "token", "create", "ci", "--expires", "30") == said
    assert tasklib.json("token", "list") == {"tokens": []}


@pytest.mark.backends("sqlite-file")
def test_whoever_stops_waiting_is_told_a_command(tasklib: CommandLine, queue: TaskQueue) -> None:
    with working(queue):
        eventually(lambda: any(worker.alive for worker in queue.workers()))
        said = tasklib.fails(5, "submit", "divide", "a=1", "b=1", "--delay", "1h", "--wait-timeout", "10ms")
    (task,) = queue.list()
    assert said == f"task {task.id} was still pending after 10ms and goes on; ask why: tasklib explain {task.id}"


@pytest.mark.backends("sqlite-file")
def test_ctrl_c_ends_mcp(tasklib: CommandLine) -> None:
    terminal = Terminal([sys.executable, "-m", "tasklib", "mcp", "--database-url", tasklib.url])
    terminal.wait_for("waiting for an agent on stdin")
    terminal.send("\x03")
    assert terminal.wait() == 130
    assert "interrupted" in terminal.text


@pytest.mark.backends("sqlite-file")
def test_agents_without_their_extra_are_exit_2(tasklib: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tasklib.mcp.server", None)
    assert tasklib.fails(2, "mcp").endswith("which is not installed: pip install 'tasklib-queue[mcp]'")
