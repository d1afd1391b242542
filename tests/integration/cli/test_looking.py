"""list and show."""

from __future__ import annotations

import pytest

from tasklib import TaskQueue
from tests.integration.cli.conftest import CommandLine

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")  # each command opens the database anew


def test_an_empty_queue_says_what_to_do_next(tasklib: CommandLine) -> None:
    tasklib.ok("migrate")
    assert tasklib.ok("list") == "No tasks yet. Submit one: tasklib submit send_email to=ada@example.com\n"
    assert tasklib.json("list") == {"tasks": [], "next": None}


def test_the_list_shows_each_task_newest_first(tasklib: CommandLine, queue: TaskQueue) -> None:
    done = queue.enqueue("divide", {"a": 6, "b": 3})
    failed = queue.enqueue("divide", {"a": 1, "b": 0}, max_attempts=1)
    retrying = queue.enqueue("divide", {"a": 2, "b": 0})
    queue.process_batch()
    delayed = queue.enqueue("report", {"month": "2030-01"}, delay_seconds=3600)

    header, *lines = tasklib.ok("list").splitlines()

    assert header.split() == ["ID", "NAME", "STATE", "TRY", "WHEN", "ABOUT"]
    assert [line.split()[:4] for line in lines] == [
        [str(delayed), "report", "delayed", "0/3"],
        [str(retrying), "divide", "retrying", "1/3"],
        [str(failed), "divide", "failed", "1/1"],
        [str(done), "divide", "completed", "1/3"],
    ]
    assert "due in 60 min" in lines[0]
    assert lines[0].rstrip().endswith("month=2030-01")
    assert lines[1].rstrip().endswith("ZeroDivisionError: division by zero")
    assert lines[3].rstrip().endswith("a=6, b=3")


def test_filters_narrow_the_list(tasklib: CommandLine, queue: TaskQueue) -> None:
    queue.enqueue("divide", {"a": 6, "b": 3}, tags={"batch": "daily", "size": 5})
    queue.enqueue("divide", {"a": 1, "b": 0}, max_attempts=1)
    queue.process_batch()
    queue.enqueue("report", {"month": "January"})

    def names(*options: str) -> list[str]:
        return [task["state"] for task in tasklib.json("list", *options)["tasks"]]

    assert names("--state", "failed") == ["failed"]
    assert names("--state", "failed", "-s", "completed") == ["failed", "completed"]
    assert names("--name", "report") == ["pending"]
    assert names("--tag", "batch=daily", "--tag", "size=5") == ["completed"]
    assert names("--tag", "size='5'") == []
    assert names("--search", "JANU") == ["pending"]
    assert names("--search", "ZeroDivision") == ["failed"]
    assert tasklib.ok("list", "--name", "nobody").startswith("No task matches.")


def test_pages_follow_one_another(tasklib: CommandLine, queue: TaskQueue) -> None:
    ids = [str(queue.enqueue("job", {"n": n})) for n in range(5)][::-1]

    seen, before = [], []
    for _ in range(3):
        page = tasklib.json("list", "--limit", "2", *before)
        seen += [task["id"] for task in page["tasks"]]
        before = ["--before", page["next"]]

    assert seen == ids
    assert page["next"] is None
    assert f"Next page: --before {ids[1]}" in tasklib.ok("list", "--limit", "2")
    assert "before" not in tasklib.ok("list", "--limit", "5")


def test_json_has_every_field_of_a_task_by_its_python_name(tasklib: CommandLine, queue: TaskQueue) -> None:
    task_id = queue.enqueue("divide", {"a": 6, "b": 3}, priority=5, tags={"ü": [1, None]}, unique_key="k")
    queue.process_batch()
    task = queue.get(task_id)

    shown = tasklib.json("show", str(task_id))

    assert [shown] == tasklib.json("list")["tasks"]
    assert set(shown) == set(type(task).__slots__)
    assert shown["id"] == str(task_id)
    assert shown["state"] == "completed"
    assert shown["kwargs"] == {"a": 6, "b": 3}
    assert shown["result"] == {"value": 2.0}
    assert shown["tags"] == {"ü": [1, None]}
    assert shown["created_at"] == task.created_at.isoformat().replace("+00:00", "Z")
    assert shown["next_retry_at"] is None
    assert [attempt["outcome"] for attempt in shown["history"]] == ["completed"]


def test_show_tells_the_whole_story(tasklib: CommandLine, queue: TaskQueue) -> None:
    task_id = queue.enqueue(
        "divide", {"a": 1, "b": 0}, priority=7, unique_key="only", tags={"batch": "x"}, max_attempts=2
    )
    queue.process_batch()

    said = tasklib.ok("show", str(task_id))

    first, *rest = said.splitlines()
    assert first == "divide  retrying"
    facts = dict(line.split(maxsplit=1) for line in rest[:9] if line.startswith("  "))
    assert facts["id"] == str(task_id)
    assert facts["attempts"] == "1 of 2"
    assert facts["priority"] == "7"
    assert '  {\n    "a": 1,\n    "b": 0\n  }\n' in said
    assert '"batch": "x"' in said
    assert "ZeroDivisionError: division by zero" in said
    assert 'return payload["a"] / payload["b"]' in said
    assert any(line.split()[:1] == ["1"] and "failed" in line for line in rest)


def test_show_gives_the_result(tasklib: CommandLine, queue: TaskQueue) -> None:
    task_id = queue.enqueue("divide", {"a": 6, "b": 3})
    queue.process_batch()
    assert tasklib.ok("show", str(task_id)).endswith("Result\n  2.0\n")


@pytest.mark.parametrize("task_id", ["0199f1e2-7c3a-7000-8000-000000000000", "nonsense"])
def test_a_task_that_is_not_there_is_exit_1(tasklib: CommandLine, queue: TaskQueue, task_id: str) -> None:
    queue.migrate()
    assert tasklib.fails(1, "show", task_id) == f"no task has the id {task_id}; it may have been deleted or cleaned up"
    ran = tasklib.run("show", task_id, "--json")
    assert ran.json["error"]["type"] == "TaskNotFound"
    assert ran.json["error"]["exit_code"] == ran.code == 1
    assert tasklib.fails(1, "list", "--before", task_id).startswith("no task has the id")
