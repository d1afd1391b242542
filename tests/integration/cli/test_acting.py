"""retry, cancel, delete and cleanup: by id, and by filter after a look at how many it would be."""

from __future__ import annotations

import sys
from datetime import timedelta
from uuid import uuid4

import pytest

from tasklib import TaskQueue
from tests.fixtures.terminal import Terminal
from tests.integration.cli.conftest import CommandLine

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


def failed_task(queue: TaskQueue, **options: object) -> str:
    task_id = queue.enqueue("divide", {"a": 1, "b": 0}, max_attempts=1, **options)
    queue.process_batch()
    return str(task_id)


def test_retry_starts_a_failed_task_again(tasklib: CommandLine, queue: TaskQueue) -> None:
    task_id = failed_task(queue)

    assert tasklib.ok("retry", task_id) == f"Started again {task_id} (divide)\n"

    task = queue.get(task_id)
    assert (task.state, task.attempts) == ("pending", 0)


def test_cancel_ends_a_waiting_task(tasklib: CommandLine, queue: TaskQueue) -> None:
    task_id = str(queue.enqueue("job"))
    assert tasklib.ok("cancel", task_id) == f"Cancelled {task_id} (job)\n"
    assert queue.get(task_id).state == "cancelled"


def test_delete_removes_a_finished_task(tasklib: CommandLine, queue: TaskQueue) -> None:
    task_id = failed_task(queue)
    assert tasklib.ok("delete", task_id) == f"Deleted {task_id} (divide)\n"
    assert queue.get(task_id) is None


def test_in_json_each_task_is_given_as_it_is_after(tasklib: CommandLine, queue: TaskQueue) -> None:
    first, second = failed_task(queue), failed_task(queue)

    said = tasklib.json("retry", first, second)

    assert (said["action"], said["count"], said["errors"]) == ("retry", 2, [])
    assert [(task["id"], task["state"]) for task in said["tasks"]] == [(first, "pending"), (second, "pending")]


def test_what_cannot_be_done_is_said_for_each_and_stops_nothing(tasklib: CommandLine, queue: TaskQueue) -> None:
    pending, gone, failed = str(queue.enqueue("job")), str(uuid4()), failed_task(queue)

    ran = tasklib.run("delete", pending, gone, failed)

    assert ran.code == 1
    assert ran.out == f"Deleted {failed} (divide)\n"
    refused, missing = ran.err.splitlines()
    assert refused.startswith(f"error: cannot delete task {pending}: it is pending")
    assert missing == f"error: no task has the id {gone}; it may have been deleted or cleaned up"

    said = tasklib.run("delete", pending, "--json")
    assert (said.code, said.json["count"]) == (1, 0)
    assert [error["error"] for error in said.json["errors"]] == ["InvalidTransition"]


def test_a_dry_run_counts_and_changes_nothing(tasklib: CommandLine, queue: TaskQueue) -> None:
    failed_task(queue)
    failed_task(queue)
    assert tasklib.ok("retry", "--all-matching", "--state", "failed", "--dry-run") == "Would retry 2 tasks.\n"
    assert tasklib.json("retry", "--all-matching", "--dry-run") == {"action": "retry", "dry_run": True, "count": 2}
    assert queue.count(state="failed") == 2


def test_priorities_are_changed_by_id_and_by_filter(tasklib: CommandLine, queue: TaskQueue) -> None:
    first, second = queue.enqueue("job"), queue.enqueue("job", tags={"batch": "a"})
    assert tasklib.ok("priority", "9", str(first)) == "Got priority 9: 1 task.\n"
    some = ["priority", "--all-matching", "--tag", "batch=a", "--search", "BATCH"]
    assert tasklib.ok(*some, "--dry-run", "5") == "Would get priority 5: 1 task.\n"
    assert tasklib.json(*some, "--yes", "5")["count"] == 1
    assert [queue.get(each).priority for each in (first, second)] == [9, 5]
    assert tasklib.fails(2, "priority", "9").startswith("which tasks?")
    assert tasklib.fails(2, "priority", "3", str(first), "--dry-run").startswith("--dry-run goes with --all-matching")
    assert queue.get(first).priority == 9
    assert tasklib.fails(1, "priority", "9", str(uuid4())).startswith("no task has the id")


def test_all_matching_acts_on_what_fits_and_nothing_else(tasklib: CommandLine, queue: TaskQueue) -> None:
    failed_task(queue, tags={"batch": "a"})
    other = failed_task(queue, tags={"batch": "b"})

    assert tasklib.ok("retry", "--all-matching", "--tag", "batch=a", "--yes") == "Started again: 1 task.\n"
    assert queue.count(state="pending") == 1
    assert queue.get(other).state == "failed"

    assert tasklib.json("cancel", "--all-matching", "-y") == {"action": "cancel", "dry_run": False, "count": 1}
    assert tasklib.ok("delete", "--all-matching", "--yes") == "Deleted: 1 task.\n"
    assert tasklib.ok("delete", "--all-matching", "--yes") == "No task matches; nothing to do.\n"
    assert tasklib.ok("delete", "--all-matching", "--state", "cancelled", "--yes") == "Deleted: 1 task.\n"


@pytest.mark.parametrize("verb", ["retry", "delete"])
def test_without_a_state_nothing_is_meant_that_succeeded_or_was_cancelled(
    tasklib: CommandLine, queue: TaskQueue, verb: str
) -> None:
    queue.enqueue("divide", {"a": 1, "b": 1})
    failed_task(queue)
    queue.cancel(queue.enqueue("job"))

    assert tasklib.json(verb, "--all-matching", "--yes")["count"] == 1

    assert (queue.count(state="completed"), queue.count(state="cancelled"), queue.count(state="failed")) == (1, 1, 0)


def test_the_count_of_a_deletion_leaves_out_tasks_that_will_be_retried(tasklib: CommandLine, queue: TaskQueue) -> None:
    failed_task(queue)
    queue.enqueue("divide", {"a": 1, "b": 0}, max_attempts=2)
    queue.process_batch()

    assert tasklib.ok("delete", "--all-matching", "--state", "failed", "--dry-run") == "Would delete 1 task.\n"
    assert tasklib.ok("delete", "--all-matching", "--state", "failed", "--yes") == "Deleted: 1 task.\n"
    assert queue.count(state="retrying") == 1


def test_without_a_person_to_ask_it_wants_yes(tasklib: CommandLine, queue: TaskQueue) -> None:
    queue.enqueue("job")
    said = tasklib.fails(2, "cancel", "--all-matching")
    assert said == "Cancel 1 task? There is no terminal to ask on: add --yes, or --dry-run to only count"
    assert queue.count(state="pending") == 1


@pytest.mark.parametrize("answer,code,state", [("y", 0, "cancelled"), ("n", 1, "pending")])
def test_a_person_is_asked_first(queue: TaskQueue, database_url: str, answer: str, code: int, state: str) -> None:
    task_id = queue.enqueue("job")
    command = [sys.executable, "-m", "tasklib", "cancel", "--all-matching", "--database-url", database_url]
    terminal = Terminal(command)
    terminal.wait_for("Cancel 1 task? [y/N]")
    terminal.send(f"{answer}\r")

    assert terminal.wait() == code
    assert queue.get(task_id).state == state


@pytest.mark.parametrize(
    "arguments,said",
    [
        (["retry"], "which tasks? Give their ids, or --all-matching with options; see: tasklib retry --help"),
        (["retry", "--name", "job"], "add --all-matching to retry every task that fits these options"),
        (["delete", "x", "--all-matching"], "give either ids or --all-matching, not both"),
        (
            ["cancel", "x", "--dry-run"],
            "--dry-run goes with --all-matching; look at single tasks with: tasklib show ID",
        ),
        (
            ["retry", "--all-matching", "--state", "pending"],
            "retry is not possible for pending tasks, only for completed, retrying, failed, cancelled, buried ones",
        ),
        (
            ["cleanup", "--older-than", "1 fortnight"],
            "'1 fortnight' is not a duration; write 90s, 15m, 12h, 30d, 2w or 1h30m",
        ),
        (
            ["cleanup", "--older-than", "1d", "--state", "running"],
            "delete is not possible for running tasks, only for completed, failed, cancelled, buried ones; "
            "cancel first",
        ),
    ],
)
@pytest.mark.backends("sqlite-file")
def test_what_cannot_be_meant_is_exit_2(
    tasklib: CommandLine, queue: TaskQueue, arguments: list[str], said: str
) -> None:
    queue.migrate()
    assert tasklib.fails(2, *arguments) == said


def test_cleanup_removes_what_ended_long_ago(tasklib: CommandLine, queue: TaskQueue) -> None:
    queue.enqueue("divide", {"a": 1, "b": 1})
    failed_task(queue)
    queue.enqueue("job")

    assert tasklib.ok("cleanup", "--older-than", "1h") == "Deleted 0 tasks.\n"
    assert tasklib.ok("cleanup", "--older-than", "0s", "--dry-run") == "Would delete 1 task.\n"
    assert tasklib.json("cleanup", "--older-than", "0") == {"action": "cleanup", "dry_run": False, "count": 1}
    assert tasklib.ok("cleanup", "--older-than", "0", "--state", "failed", "--name", "other") == "Deleted 0 tasks.\n"
    assert tasklib.ok("cleanup", "--older-than", "0", "-s", "failed", "-s", "cancelled") == "Deleted 1 task.\n"
    assert queue.count() == 1


def test_cleanup_takes_a_date_too(tasklib: CommandLine, queue: TaskQueue) -> None:
    failed = queue.get(failed_task(queue))
    before, after = (failed.completed_at + timedelta(days=days) for days in (-1, 1))
    assert tasklib.ok("cleanup", "--state", "failed", "--older-than", before.isoformat()) == "Deleted 0 tasks.\n"
    assert tasklib.ok("cleanup", "--state", "failed", "--older-than", f"{after:%Y-%m-%d}T23:59Z") == "Deleted 1 task.\n"
