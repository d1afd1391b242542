"""Copying a queue from SQLite to PostgreSQL, and watching one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tasklib import TaskQueue
from tasklib.cli.main import main
from tasklib.core.lifecycle import Phase, phase_of
from tasklib.storage.operations.limits.budgets import list_budgets
from tests.fixtures.queues import Face, open_queue
from tests.fixtures.terminal import Terminal
from tests.integration.cli.conftest import CommandLine


@pytest.fixture
def source(sqlite_url: str) -> Iterator[Face]:
    """A queue with a task in every phase, a delayed one, a schedule, a pause and a limit."""
    with open_queue(sqlite_url) as queue:
        for phase in (Phase.BURIED, Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED, Phase.RETRYING, Phase.RUNNING):
            queue.task_in(phase, payload={"ö": [1, None, "x"]}, tags={"a": "b"})
        queue.enqueue("job", {"n": 1}, unique_key="k", priority=7)
        queue.enqueue("job", delay_seconds=3600)
        queue.add_schedule("nightly", task="job", cron="0 3 * * *", kwargs={"x": 1})
        queue.add_schedule("often", task="job", every=3600, kwargs={"x": 2})
        queue.pause("other", by="ada")
        queue.set_rate_limit(5, "job", burst=20)
        queue.set_key_limit(3, "tenant-7")
        queue.set_budget("calls", per_minute=60, burst=7)
        queue.set_objective("job", within_seconds=5, target=99)
        yield queue


@pytest.mark.backends("postgres-newest")
def test_a_queue_moves_with_everything_in_it(
    source: Face, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {task.id: task for task in source.list()}

    assert main(["copy", source.url, database_url, "--force"]) == 0
    assert "Copied 8 of 8 tasks" in capsys.readouterr().out
    with TaskQueue(database_url) as target:
        after = {task.id: task for task in target.list()}
        assert list(after) == list(before)
        for task_id, old in before.items():
            new = after[task_id]
            expected = Phase.PENDING if phase_of(old) is Phase.RUNNING else phase_of(old)
            assert (phase_of(new), new.kwargs, new.tags) == (expected, old.kwargs, old.tags)
            assert (new.result, new.error, new.created_at) == (old.result, old.error, old.created_at)
            assert (new.scheduled_at, new.unique_key, new.priority) == (old.scheduled_at, old.unique_key, old.priority)
            assert [each.outcome for each in new.history] == [each.outcome for each in old.history]
        assert [each.plan.kwargs for each in target.schedules()] == [{"x": 1}, {"x": 2}]
        assert [each.next_run_at for each in target.schedules()] == [each.next_run_at for each in source.schedules()]
        assert [pause.name for pause in target.pauses()] == ["other"]
        assert [(each.name, each.rate, each.burst) for each in target.limits()] == [("job", 5, 20)]
        assert [(each.key, each.max_running) for each in target.key_limits()] == [("tenant-7", 3)]
        budgets = target.database.run(list_budgets)
        assert [(each.name, each.rate, each.burst) for each in budgets] == [("calls", 1, 7)]
        assert [str(each.objective) for each in target.objectives()] == ["99 % start within 5 s"]
        assert target.stats().total == 8
    assert source.is_paused()


@pytest.mark.backends("postgres-newest")
def test_copying_again_adds_only_what_is_new(
    source: Face, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["copy", source.url, database_url, "--force"]) == 0
    source.enqueue("job")
    source.set_key_limit(2, "tenant-8")
    with TaskQueue(database_url) as target:
        changed = [target.add_schedule("nightly", task="job", cron="0 4 * * *"), target.get_schedule("often")]
        target.set_rate_limit(9, "job")
        target.set_budget("calls", per_second=3)
        target.set_objective("job", within_seconds=7, target=90)
        capsys.readouterr()
        assert main(["copy", source.url, database_url, "--force"]) == 0
        said = capsys.readouterr().out
        assert "Copied 1 of 9 tasks; 8 had come before." in said
        assert (
            "Schedules: 0, pauses: 0, limits: 1, objectives: 0; 7 had come before and stay as they are there." in said
        )
        assert not target.is_paused()
        assert target.schedules() == changed
        assert [limit.rate for limit in target.limits()] == [9]
        assert [each.rate for each in target.database.run(list_budgets)] == [3]
        assert [str(each.objective) for each in target.objectives()] == ["90 % start within 7 s"]


@pytest.mark.backends("postgres-newest")
def test_what_was_removed_in_the_target_does_not_come_back(source: Face, database_url: str) -> None:
    source.pause(by="ada", reason="for the night")
    assert main(["copy", source.url, database_url, "--force"]) == 0
    with TaskQueue(database_url) as target:

        def settings() -> list[object]:
            limits = (target.limits(), target.key_limits(), target.budgets())
            return [
                *target.schedules(),
                *target.pauses(),
                *(each for kind in limits for each in kind),
                *target.objectives(),
            ]

        assert len(settings()) == 8
        for name in ("nightly", "often"):
            target.remove_schedule(name)
        target.resume()
        target.resume("other")
        target.set_rate_limit(0, "job")
        target.set_key_limit(None, "tenant-7")
        target.set_budget("calls", per_second=0)
        target.remove_objective("job")
        assert main(["copy", source.url, database_url, "--force"]) == 0
        assert settings() == []


def test_a_source_with_live_workers_is_refused(
    sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_queue(sqlite_url) as queue:
        queue.sql("SELECT 1")
        queue.worker(timeout_seconds=1e9)
        assert main(["copy", sqlite_url, f"sqlite:///{tmp_path}/new.db"]) == 1
        assert "workers are alive" in capsys.readouterr().err
        assert not queue.is_paused()


@pytest.mark.backends("sqlite-file")
def test_top_shows_the_queue_once_where_there_is_no_terminal(tasklib: CommandLine) -> None:
    with TaskQueue(tasklib.url) as queue:

        @queue.task(name="job", max_retries=0)
        def job(fails: bool = False) -> None:
            if fails:
                raise ValueError

        job.submit()
        job.submit(fails=True)
        queue.process_batch()
        queue.enqueue("other")
    seen = tasklib.json("top")
    assert all(
        datetime.fromisoformat(each["at"]).second == 0 and each["at"].endswith("Z") for each in seen["per_minute"]
    )
    assert (seen["stats"]["pending"], seen["stats"]["completed"], seen["stats"]["failed"]) == (1, 1, 1)
    assert [each["name"] for each in seen["failing"]] == ["job"]
    assert sum(each.get("completed", 0) for each in seen["per_minute"]) == 1
    text = tasklib.ok("top")
    assert "Slowest types" in text
    assert "job" in text


def test_top_follows_the_queue_on_a_terminal_until_ctrl_c(sqlite_url: str) -> None:
    with TaskQueue(sqlite_url) as queue:
        queue.enqueue("job")
        terminal = Terminal([sys.executable, "-m", "tasklib", "top", "--interval", "0.2", "--database-url", sqlite_url])
        terminal.wait_for("Failing types")
        terminal.wait_for("pending        1")
        queue.enqueue("job")
        terminal.wait_for("pending        2")
        terminal.send("\x03")
        assert terminal.wait() == 0


@pytest.mark.backends("sqlite-file")
def test_doctor_says_what_is_wrong_and_ends_so(tasklib: CommandLine) -> None:
    tasklib.ok("migrate")
    assert "Nothing is wrong" in tasklib.ok("doctor")
    with TaskQueue(tasklib.url) as queue:
        queue.enqueue("job")
    ran = tasklib.run("doctor")
    assert ran.code == 1
    assert "no live worker takes it" in ran.out
    assert tasklib.run("doctor", "--json").json["findings"][0]["code"] == "no-worker"


@pytest.mark.backends("sqlite-file")
def test_a_queue_is_not_copied_from_nowhere_or_onto_itself(
    tmp_path: Path, sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_queue(sqlite_url) as queue:
        queue.enqueue("job")
        (tmp_path / "other").symlink_to(sqlite_url.removeprefix("sqlite:///"))

        for same in (sqlite_url, f"sqlite:///{tmp_path}/other"):
            assert main(["copy", sqlite_url, same]) == 2
            assert "cannot be copied onto itself" in capsys.readouterr().err
        assert main(["copy", f"sqlite:///{tmp_path}/missing.db", f"sqlite:///{tmp_path}/new.db"]) == 3
        assert "there is no database" in capsys.readouterr().err
        assert not (tmp_path / "missing.db").exists()
        assert not queue.is_paused()
