"""submit, one task at a time."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tasklib import TaskQueue
from tests.fixtures.waiting import eventually
from tests.integration.cli.conftest import CommandLine

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


def test_arguments_are_pairs_whose_values_are_json_where_they_can_be(tasklib: CommandLine, queue: TaskQueue) -> None:
    pairs = [
        "to=ada@example.com",
        "copies=2",
        "urgent=true",
        "note=",
        "zip=01234",
        'id="5"',
        "list=[1, null]",
        "eq=a=b",
    ]

    said = tasklib.ok("submit", "send_email", *pairs)

    (task,) = queue.list()
    assert said == f"Submitted send_email {task.id}\n"
    assert (task.name, task.max_attempts) == ("send_email", 3)
    assert task.kwargs == {
        "to": "ada@example.com",
        "copies": 2,
        "urgent": True,
        "note": "",
        "zip": "01234",
        "id": "5",
        "list": [1, None],
        "eq": "a=b",
    }


def test_the_payload_may_be_any_json_from_anywhere(tasklib: CommandLine, queue: TaskQueue, tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text('["from a file"]')
    tasklib.ok("submit", "a", "--payload", '{"deep": {"er": [1.5]}}')
    tasklib.ok("submit", "b", "--payload", f"@{file}")
    tasklib.ok("submit", "c", "--payload", "-", stdin='"from stdin"')
    tasklib.ok("submit", "d")

    assert {task.name: task.kwargs for task in queue.list()} == {
        "a": {"deep": {"er": [1.5]}},
        "b": ["from a file"],
        "c": "from stdin",
        "d": {},
    }


def test_options_say_how_it_shall_run(tasklib: CommandLine, queue: TaskQueue) -> None:
    options = [
        "--priority",
        "-5",
        "--delay",
        "1h30m",
        "--max-attempts",
        "7",
        "--task-timeout",
        "2m",
        "--unique-key",
        "k",
    ]
    before = datetime.now(UTC)
    tasklib.ok("submit", "job", *options, "--tag", "batch=daily", "--tag", "size=5")

    (task,) = queue.list()
    assert (task.priority, task.max_attempts, task.timeout_seconds, task.unique_key) == (-5, 7, 120, "k")
    assert before <= task.scheduled_at - timedelta(minutes=90) <= datetime.now(UTC)
    assert task.tags == {"batch": "daily", "size": 5}


def test_it_can_wait_for_a_moment(tasklib: CommandLine, queue: TaskQueue) -> None:
    tasklib.ok("submit", "job", "--run-at", "2030-01-31T09:00:00+01:00")
    assert queue.list()[0].scheduled_at == datetime(2030, 1, 31, 8, tzinfo=UTC)


def test_a_taken_unique_key_returns_the_task_that_has_it(tasklib: CommandLine, queue: TaskQueue) -> None:
    first = tasklib.json("submit", "job", "--unique-key", "k")
    second = tasklib.json("submit", "job", "--unique-key", "k")

    assert first == {"id": first["id"], "name": "job", "created": True}
    assert second == {**first, "created": False}
    assert tasklib.ok("submit", "job", "--unique-key", "k").startswith(f"job {first['id']} has that unique key")
    assert tasklib.fails(1, "submit", "job", "--unique-key", "k", "--on-conflict", "raise").startswith(
        f"task {first['id']} of 'job' already holds the unique key 'k'"
    )
    tasklib.ok("submit", "job", "n=2", "--unique-key", "k", "--on-conflict", "replace")
    assert [task.kwargs for task in queue.list()] == [{"n": 2}]


def test_waiting_shows_how_it_ended(tasklib: CommandLine, queue: TaskQueue) -> None:
    with background_worker(queue):
        done = tasklib.json("submit", "divide", "a=6", "b=3", "--wait")
        failed = tasklib.run("submit", "divide", "a=6", "b=0", "--max-attempts", "1", "--wait")

    assert done["created"] is True
    assert (done["task"]["state"], done["task"]["result"]) == ("completed", {"value": 2.0})
    assert failed.code == 1
    assert "ZeroDivisionError" in failed.out
    assert failed.err.endswith("ended as failed\n")


def test_waiting_in_vain_is_exit_5(tasklib: CommandLine, queue: TaskQueue) -> None:
    assert "was still pending after 50ms" in tasklib.fails(5, "submit", "job", "--wait-timeout", "50ms")
    assert queue.count() == 1


@pytest.mark.parametrize(
    "arguments,said",
    [
        ([], "which task? Give its name"),
        (["to=ada"], "the task's name comes first, as in: tasklib submit NAME to=ada"),
        (["job", "oops"], "argument 'oops' is not name=value"),
        (["job", "=1"], "argument '=1' is not name=value"),
        (["job", "a=1", "a=2"], "argument 'a' is given twice"),
        (["job", "a=1", "--payload", "{}"], "give the arguments either as key=value or by --payload, not both"),
        (["job", "--payload", "{a: 1}"], "the payload is not JSON: Expecting property name"),
        (["job", "--payload", "[NaN]"], "the payload is not JSON: NaN is not JSON"),
        (["job", "--payload", "[" * 5000], "the payload is nested too deeply"),
        (["job", "--payload", "@/nowhere/x.json"], "cannot read /nowhere/x.json"),
        (["job", "--payload", '{"a": "\\u0000"}'], "arguments do not fit task 'job'"),
        (["job", "--delay", "soon"], "'soon' is not a duration"),
        (["job", "--run-at", "noon"], "'noon' is not a time"),
        (["job", "--delay", "1m", "--run-at", "2030-01-01"], "give either --delay or --run-at, not both"),
        (["job", "--max-attempts", "0"], "Invalid value for '--max-attempts'"),
        (["job", "--priority", "high"], "Invalid value for '--priority'"),
        (["job", "--on-conflict", "shrug"], "on_conflict must be 'return', 'raise' or 'replace'"),
        (["job", "--tag", "x"], "tag 'x' is not name=value"),
        (["job", "--dry-run"], "--dry-run goes with --file"),
        (["job", "--app", "no.such.module"], "there is no module no.such.module"),
        (["two words\n"], "a task's name"),
    ],
)
@pytest.mark.backends("sqlite-file")
def test_what_cannot_be_submitted_is_exit_2_and_nothing_is_stored(
    tasklib: CommandLine, queue: TaskQueue, arguments: list[str], said: str
) -> None:
    assert said in tasklib.fails(2, "submit", *arguments)
    assert queue.count() == 0


@pytest.mark.backends("sqlite-file")
def test_with_its_module_the_arguments_are_checked_and_its_options_apply(
    tasklib: CommandLine, queue: TaskQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checked_tasks.py").write_text(
        f"from tasklib import TaskQueue\nqueue = TaskQueue({tasklib.url!r})\n"
        "@queue.task(max_retries=9, priority=4)\ndef add(a: int, b: int) -> int:\n    return a + b\n"
    )
    monkeypatch.chdir(tmp_path)

    assert "arguments do not fit task 'add'" in tasklib.fails(2, "submit", "add", "a=1", "--app", "checked_tasks")
    assert "did you mean add?" in tasklib.fails(2, "submit", "ad", "a=1", "b=2", "--app", "checked_tasks")
    tasklib.ok("submit", "add", "a=1", "b=2", "--app", "checked_tasks")

    (task,) = queue.list()
    assert (task.max_retries, task.priority) == (9, 4)


class background_worker:  # noqa: N801 used like a function
    """Runs what is due, over and over, while the block runs."""

    def __init__(self, queue: TaskQueue) -> None:
        self._queue = queue
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._over.wait(0.01):
            self._queue.process_batch()


def test_json_is_one_document_on_stdout_and_nothing_else(tasklib: CommandLine) -> None:
    ran = tasklib.run("submit", "job", "--json")
    assert json.loads(ran.out)["name"] == "job"
    assert ran.err == ""
    assert eventually(lambda: tasklib.json("list")["tasks"])
