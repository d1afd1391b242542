"""The two example programs, run as a newcomer runs them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tasklib import TaskQueue
from tests.fixtures import python
from tests.fixtures.waiting import eventually
from tools.problems import ROOT

SUBMITTED = 5


def test_the_worker_ends_on_sigterm(sqlite_url: str) -> None:
    worker = python.popen([sys.executable, "examples/worker.py"], cwd=ROOT, env=environment(sqlite_url))
    with TaskQueue(sqlite_url) as queue:
        eventually(lambda: queue.workers())
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(180) == 0


def test_one_submits_and_the_other_runs_it_by_default_in_a_file_beside_them(tmp_path: Path) -> None:
    for name in ("simple.py", "worker.py"):
        (tmp_path / name).write_text((ROOT / "examples" / name).read_text())

    assert run("simple.py", None, folder=tmp_path).count("submitted ") == SUBMITTED
    assert "to ada@example.com: Welcome" in run("worker.py", None, "--until-idle", folder=tmp_path)

    with TaskQueue(f"sqlite:///{tmp_path / 'tasks.db'}") as queue:
        assert queue.count(state="completed") == queue.count() == SUBMITTED
        (fetched,) = queue.list(name="fetch")
        assert (fetched.result, fetched.attempts) == ({"value": 200}, 3)


def run(program: str, url: str | None, *arguments: str, folder: Path = ROOT / "examples") -> str:
    command = [sys.executable, str(folder / program), *arguments]
    return python.run(command, env=environment(url), check=True, timeout=180, stdout=subprocess.PIPE, text=True).stdout


def environment(url: str | None) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("DATABASE_URL", "TASKLIB_DATABASE_URL")}
    return kept if url is None else kept | {"DATABASE_URL": url}
