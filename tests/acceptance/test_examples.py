"""The two example programs, run as a newcomer runs them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tasklib import TaskQueue
from tests.fixtures.waiting import eventually
from tools.problems import ROOT

SUBMITTED = 5


@pytest.mark.backends("sqlite-file", "postgres-newest")  # two programs share it
def test_one_submits_and_the_other_runs_what_it_submitted(database_url: str) -> None:
    said = run("simple.py", database_url)
    assert said.count("submitted ") == SUBMITTED

    said = run("worker.py", database_url, "--until-idle")

    assert "to ada@example.com: Welcome" in said
    with TaskQueue(database_url) as queue:
        assert queue.count(state="completed") == queue.count() == SUBMITTED
        (fetched,) = queue.list(name="fetch")
        assert (fetched.result, fetched.attempts) == ({"value": 200}, 3)


def test_the_worker_ends_on_sigterm(sqlite_url: str) -> None:
    run("simple.py", sqlite_url)
    worker = subprocess.Popen([sys.executable, "examples/worker.py"], cwd=ROOT, env=environment(sqlite_url))
    with TaskQueue(sqlite_url) as queue:
        eventually(lambda: queue.workers())
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0


def test_without_a_database_url_they_use_a_file_beside_them(tmp_path: Path) -> None:
    for name in ("simple.py", "worker.py"):
        (tmp_path / name).write_text((ROOT / "examples" / name).read_text())

    run("simple.py", None, folder=tmp_path)
    run("worker.py", None, "--until-idle", folder=tmp_path)

    with TaskQueue(f"sqlite:///{tmp_path / 'tasks.db'}") as queue:
        assert queue.count(state="completed") == SUBMITTED


def run(program: str, url: str | None, *arguments: str, folder: Path = ROOT / "examples") -> str:
    command = [sys.executable, str(folder / program), *arguments]
    return subprocess.run(
        command, env=environment(url), check=True, timeout=60, stdout=subprocess.PIPE, text=True
    ).stdout


def environment(url: str | None) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("DATABASE_URL", "TASKLIB_DATABASE_URL")}
    return kept if url is None else kept | {"DATABASE_URL": url}
