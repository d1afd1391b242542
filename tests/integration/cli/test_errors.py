"""Errors: one line that says what to do, never a stack trace, and an exit code that means something."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tasklib import TaskQueue, errors
from tasklib.cli.exit_codes import MEANINGS, Exit, code_for
from tasklib.cli.main import main
from tests.fixtures import python
from tests.integration.cli.conftest import CommandLine

SILENT = "postgresql://app:s3cret@127.0.0.1:1/app"


@pytest.mark.backends("sqlite-file")
def test_a_command_that_is_not_understood_is_exit_2(tasklib: CommandLine) -> None:
    assert tasklib.fails(2, "lst") == "No such command 'lst'. Did you mean 'list'? (see: tasklib --help)"
    assert tasklib.fails(2, "list", "--stat", "x").startswith("No such option: --stat")
    assert tasklib.fails(2, "show").startswith("Missing argument 'ID'.")
    assert tasklib.fails(2, "list", "--limit", "0").startswith("Invalid value for '--limit'")
    assert tasklib.fails(2, "list", "--state", "sleeping").startswith(
        "no such state: 'sleeping'; the states are pending,"
    )


@pytest.mark.backends("sqlite-file")
@pytest.mark.parametrize("command", [["lst"], ["list", "--stat", "x"], ["show"], ["list", "--limit", "0"]])
def test_a_command_that_is_not_understood_is_said_as_json_too(tasklib: CommandLine, command: list[str]) -> None:
    for asked in ([*command, "--json"], ["--json", *command]):
        ran = tasklib.run(*asked)
        error = ran.json["error"]
        assert (ran.code, error["type"], error["exit_code"]) == (2, "UsageError", 2)
        assert ran.err == f"error: {error['message']}\n"


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == Exit.USAGE
    assert capsys.readouterr().out.startswith("Usage: tasklib")


@pytest.mark.parametrize("command", [["list"], ["stats"], ["submit", "job"], ["migrate"], ["pause"], ["workers"]])
def test_a_server_that_does_not_answer_is_exit_3_and_its_password_stays_hidden(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--dsn", SILENT]) == 3
    said = capsys.readouterr()
    assert said.err.startswith("error: cannot connect to postgresql://app:***@127.0.0.1:1/app")
    assert said.err.count("\n") == 1
    assert "s3cret" not in said.err + said.out


def test_an_at_sign_in_a_password_is_named_and_no_part_of_the_password_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", "--dsn", "postgresql://app:s3@cret@127.0.0.1:1/app"]) == 3
    said = capsys.readouterr().err
    assert said.endswith("; write each @ in the password as %40\n")
    assert "cret" not in said


def test_a_file_that_is_no_database_is_exit_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("not a database " * 100)
    assert main(["list", "--database-url", f"sqlite:///{tmp_path / 'notes.txt'}"]) == 3
    assert "it is a SQLite database" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_exit_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "job", "--database-url", "sqlite:////nowhere/at/all/x.db"]) == 3
    assert "does not exist; create it" in capsys.readouterr().err


def test_a_schema_made_by_a_newer_tasklib_is_exit_3(sqlite_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with TaskQueue(sqlite_url) as queue:
        queue.migrate()
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    connection.execute("INSERT INTO tasklib_migrations (version, name, min_compatible) VALUES (9999, 'future', 9999)")
    connection.commit()
    connection.close()
    assert main(["list", "--database-url", sqlite_url]) == 3
    assert "made by a newer tasklib" in capsys.readouterr().err


@pytest.mark.new_schema
def test_a_table_of_somebody_else_is_exit_3(newest_postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    import psycopg

    from tests.fixtures.backends import libpq_url

    with psycopg.connect(libpq_url(newest_postgres_url)) as connection:
        connection.execute("CREATE TABLE tasks (chore text)")
    assert main(["migrate", "--database-url", newest_postgres_url]) == 3
    assert "that is not tasklib's; it was not touched" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["mysql://localhost/x", "nonsense", "sqlite://relative.db", "postgresql://[::1/x"])
def test_a_url_that_cannot_work_is_exit_2(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--database-url", url]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_looking_creates_no_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path / 'typo.db'}"
    looking = dict.fromkeys(("list", "stats", "types", "workers", "schedules", "rate-limit"), 0)
    for command, code in {**looking, "show x": 1, "cancel x": 1}.items():
        assert main([*command.split(), "--database-url", url]) == code
        said = capsys.readouterr().err
        assert said.startswith(f"note: there is no database {tmp_path / 'typo.db'} yet; --database-url or DATABASE_URL")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.backends("sqlite-file")
def test_the_url_may_come_before_the_command_or_from_the_environment(
    queue: TaskQueue, database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task_id = str(queue.enqueue("job"))
    for arguments in (
        ["--database-url", database_url, "list"],
        ["--dsn", database_url, "list"],
        ["list", "--dsn", database_url],
    ):
        assert main(arguments) == 0
        assert task_id in capsys.readouterr().out
    monkeypatch.setenv("DATABASE_URL", database_url)
    assert main(["list"]) == 0
    assert task_id in capsys.readouterr().out
    monkeypatch.setenv("TASKLIB_DATABASE_URL", "sqlite:////nowhere/x.db")
    assert main(["submit", "job"]) == 3
    assert main(["--json", "list", "--dsn", database_url]) == 0


def test_without_any_url_it_is_a_file_in_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["submit", "job"]) == 0
    assert (tmp_path / "tasklib.db").exists()


def test_a_bug_is_one_line_too_unless_one_wants_to_see_it(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tasklib.service.statistics.Statistics.overview", lambda self: 1 / 0)
    assert main(["stats", "--database-url", sqlite_url]) == 70
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: unexpected ZeroDivisionError: division by zero (a bug in tasklib")
    monkeypatch.setenv("TASKLIB_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["stats", "--database-url", sqlite_url])


def test_a_reader_that_goes_away_is_no_error(sqlite_url: str) -> None:
    with TaskQueue(sqlite_url) as queue:
        queue.enqueue("job")
    for form in ("", "--json"):
        command = f"{sys.executable} -m tasklib list {form} --database-url {sqlite_url} | true"
        done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
        assert done.stderr == ""
        assert done.returncode == Exit.PIPE_CLOSED


def test_every_error_has_a_code_and_every_code_a_meaning() -> None:
    assert set(MEANINGS) == set(Exit)
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.TaskLibError)]
    codes = {kind.__name__: code_for(kind.__new__(kind)) for kind in kinds}
    assert Exit.INTERNAL not in codes.values()
    assert codes["TaskNotFound"] == codes["UniqueConflict"] == codes["InvalidTransition"] == Exit.FAILED
    assert codes["ConfigurationError"] == codes["InvalidArguments"] == codes["InvalidPayload"] == Exit.USAGE
    assert codes["SchemaTooNew"] == codes["DatabaseUnavailable"] == codes["DatabaseBusy"] == Exit.DATABASE
    assert (codes["WorkerStuck"], codes["WaitTimeout"]) == (Exit.WORKER, Exit.TIMEOUT)


def test_ctrl_c_is_exit_130(sqlite_url: str) -> None:
    import signal

    command = [sys.executable, "-m", "tasklib", "submit", "job", "--wait", "--database-url", sqlite_url]
    process = python.popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stderr is not None
    assert "no worker is alive" in process.stderr.readline()  # from here on it waits
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=180)
    assert process.returncode == 130
    assert said.splitlines()[-1] == "interrupted"


def test_ctrl_c_while_a_thread_starts_is_exit_130(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Thread.start() waits for the new thread; Ctrl-C in that wait leaves one that cannot be joined."""
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if thread.name != "tasklib-sqlite-watch":
            return start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    assert main(["submit", "job", "--wait", "--database-url", sqlite_url]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted"


def test_an_error_while_cleaning_up_after_ctrl_c_is_exit_130(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_args: object, **_options: object) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("cannot be closed")

    monkeypatch.setattr(TaskQueue, "enqueue", fail)
    assert main(["submit", "job", "--database-url", sqlite_url]) == 130
    assert capsys.readouterr().err.splitlines() == ["interrupted"]
