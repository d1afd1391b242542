"""explain, rate-limit and schedules."""

from __future__ import annotations

import pytest

from tasklib import TaskQueue
from tasklib.queue.change_log import local_user
from tasklib.service.service import QueueService
from tests.integration.cli.conftest import CommandLine

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


def test_explain_says_why_a_task_waits_and_what_to_do(tasklib: CommandLine, queue: TaskQueue) -> None:
    task_id = str(queue.enqueue("job", delay_seconds=3600))
    queue.pause("job", reason="not now")

    first, *said = tasklib.ok("explain", task_id).splitlines()
    explained = tasklib.json("explain", task_id)

    assert first == f"job  delayed  {task_id}"
    assert said[0].startswith("  1. due in ")
    assert any(line.startswith("     What to do: resume: tasklib resume job") for line in said)
    assert (explained["id"], explained["state"]) == (task_id, "pending")
    assert [reason["code"] for reason in explained["reasons"]] == ["delayed", "paused", "no_worker"]
    assert tasklib.fails(1, "explain", "nonsense").startswith("no task has the id nonsense")


def test_what_the_command_line_changes_is_among_the_changes(tasklib: CommandLine, queue: TaskQueue) -> None:
    for number in range(2):
        queue.enqueue("job", number)
    tasklib.ok("pause", "job")
    tasklib.ok("rate-limit", "5", "job")
    tasklib.ok("cancel", "--all-matching", "--name", "job", "--yes")
    tasklib.ok("resume", "job")

    changes = QueueService(queue).findings.changes(seconds=3600)
    user = local_user()
    assert [change.text for change in reversed(changes)] == [
        f"{user} paused job",
        f"{user} set the rate limit of job to 5/s",
        f"{user} cancelled tasks of job in bulk (2 tasks)",
        f"{user} resumed job",
    ]


def test_a_rate_limit_is_set_shown_and_lifted(tasklib: CommandLine, queue: TaskQueue) -> None:
    queue.migrate()
    assert tasklib.ok("rate-limit").startswith("No limits. Set one:")
    said = "Tasks named send_email: at most 10 started per second (set at run time)\n"
    assert tasklib.ok("rate-limit", "10", "send_email") == said
    assert queue.get_rate_limit("send_email") == 10
    tasklib.ok("key-limit", "3", "tenant-7")
    tasklib.ok("budget", "300", "calls", "--burst", "20")
    shown = (
        "Tasks of key tenant-7: at most 3 running at once\nBudget calls: 300 tokens per minute, at most 20; 20 left\n"
    )
    assert tasklib.ok("limits") == f"{said}{shown}"
    assert set(tasklib.json("limits")) == {"limits", "key_limits", "budgets"}
    assert tasklib.json("budget", "0", "calls")["budgets"] == []
    tasklib.ok("key-limit", "default", "tenant-7")
    (limit,) = tasklib.json("rate-limit")["limits"]
    assert (limit["name"], limit["rate"]) == ("send_email", 10)
    tasklib.ok("rate-limit", "0", "send_email")
    tasklib.ok("rate-limit", "0.5")
    assert (queue.get_rate_limit("send_email"), queue.get_rate_limit()) == (0, 0.5)
    assert tasklib.fails(2, "rate-limit", "many").startswith("Invalid value for 'N'")


def test_a_concurrency_limit_is_set_shown_and_lifted(tasklib: CommandLine, queue: TaskQueue) -> None:
    assert (
        tasklib.ok("concurrency-limit", "4", "job") == "Tasks named job: at most 4 running at once (set at run time)\n"
    )
    assert tasklib.json("concurrency-limit")["limits"][0]["max_running"] == 4
    assert tasklib.ok("concurrency-limit", "0", "job").startswith("No limits.")


def test_key_limits_are_set_shown_and_forgotten(tasklib: CommandLine, queue: TaskQueue) -> None:
    tasklib.ok("key-limit", "3")
    tasklib.ok("key-limit", "0", "ada")
    said = tasklib.ok("key-limit", "2", "--name", "job")
    assert said.splitlines() == [
        "Tasks of each other key: at most 3 running at once",
        "Tasks of key ada: any number running at once",
        "Tasks named job of each other key: at most 2 running at once",
    ]
    assert tasklib.ok("rate-limit") == said
    assert tasklib.json("key-limit", "default", "ada")["key_limits"] == [
        {"key": None, "max_running": 3, "name": None},
        {"key": None, "max_running": 2, "name": "job"},
    ]
    assert tasklib.fails(2, "key-limit", "many").startswith("N is a number of tasks")


def test_an_objective_is_set_shown_and_removed(tasklib: CommandLine, queue: TaskQueue) -> None:
    queue.migrate()
    said = tasklib.ok("objectives", "send_email", "--within", "200ms", "--target", "99")
    assert said == "send_email: 99 % start within 0.2 s; nothing has run\n"
    (found,) = tasklib.json("objectives")["objectives"]
    assert (found["objective"]["name"], found["count"], found["budget"]) == ("send_email", 0, None)
    assert [str(each.objective) for each in queue.objectives()] == ["99 % start within 0.2 s"]
    assert "between 0 and 100" in tasklib.fails(2, "objectives", "--within", "5s", "--target", "100")
    assert "no objective about the run of send_email" in tasklib.fails(
        1, "objectives", "send_email", "--kind", "run", "--remove"
    )
    assert tasklib.ok("objectives", "send_email", "--remove").startswith("No objectives. Set one:")


def test_a_schedule_is_made_shown_run_and_removed(tasklib: CommandLine, queue: TaskQueue) -> None:
    queue.migrate()
    assert tasklib.ok("schedules").startswith("No schedules. Create one:")

    options = ["--task", "report", "--cron", "0 3 * * *", "--tz", "Europe/Paris", "depth=2"]
    assert "  arguments    depth=2\n" in tasklib.ok("schedules", "add", "nightly", *options)

    header, line = tasklib.ok("schedules").splitlines()
    assert header.split() == ["NAME", "TASK", "RUNS", "NEXT", "LAST"]
    assert line.split()[:2] == ["nightly", "report"]
    shown = tasklib.json("schedules", "show", "nightly")
    assert (shown["name"], shown["cron"], shown["tz"], shown["kwargs"]) == (
        "nightly",
        "0 3 * * *",
        "Europe/Paris",
        {"depth": 2},
    )
    assert len(shown["next_runs"]) == 5

    assert tasklib.ok("schedules", "pause", "nightly").startswith("nightly  paused\n")
    assert tasklib.json("schedules")["schedules"][0]["paused_by"]
    assert tasklib.ok("schedules", "resume", "nightly").startswith("nightly  active\n")

    task = queue.get(tasklib.json("schedules", "run", "nightly")["id"])
    assert (task.name, task.kwargs) == ("report", {"depth": 2})
    assert tasklib.ok("schedules", "remove", "nightly").startswith("Removed nightly;")
    assert queue.schedules() == []


def test_an_interval_is_a_duration(tasklib: CommandLine) -> None:
    assert "  runs         every 1 min 30 s\n" in tasklib.ok(
        "schedules", "add", "ping", "--task", "ping", "--every", "90s"
    )


@pytest.mark.parametrize(
    "arguments,code,said",
    [
        (["dance"], 2, "no such action: 'dance'; there are list, add, show, run, pause, resume, remove"),
        (["show"], 2, "which schedule? Give its name: tasklib schedules show NAME"),
        (["add", "x"], 2, "which task? Give its name by --task"),
        (["add", "x", "--task", "y"], 2, "when? Give either --cron or --every"),
        (["add", "x", "--task", "y", "--cron", "@daily", "--every", "5s"], 2, "when? Give either --cron or --every"),
        (["add", "x", "--task", "y", "--cron", "soon"], 2, "schedule 'x': 'soon' is not a cron expression"),
        (["add", "x", "--task", "y", "--cron", "* * * * *", "--tz", "Mars/Base"], 2, "no such time zone: 'Mars/Base'"),
        (["show", "x"], 1, "there is no schedule 'x'; see: tasklib schedules"),
        (["run", "x"], 1, "there is no schedule 'x'"),
        (["pause", "x"], 1, "there is no schedule 'x'"),
        (["remove", "x"], 1, "there is no schedule 'x'"),
    ],
)
@pytest.mark.backends("sqlite-file")
def test_what_cannot_be_done_is_said(
    tasklib: CommandLine, queue: TaskQueue, arguments: list[str], code: int, said: str
) -> None:
    queue.migrate()
    assert tasklib.fails(code, "schedules", *arguments).startswith(said)
    assert queue.schedules() == []


def test_limits_say_where_they_come_from(tasklib: CommandLine, queue: TaskQueue) -> None:
    @queue.task(name="crawl", rate=5, burst=10, max_running=3)
    def crawl() -> None: ...

    queue.process_batch()
    assert tasklib.ok("limits").splitlines() == [
        "Tasks named crawl: at most 5 started per second, 10 at once after a quiet time (declared in code)",
        "Tasks named crawl: at most 3 running at once (declared in code)",
    ]
    said = tasklib.ok("concurrency-limit", "4", "crawl").splitlines()
    assert said[1] == "Tasks named crawl: at most 4 running at once (set at run time; the code declares 3)"
