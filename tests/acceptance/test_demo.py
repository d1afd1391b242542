"""`tasklib demo`: one command shows everything, ends by itself, and proves that nothing was lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tasklib import TaskQueue
from tests.fixtures import python
from tests.fixtures.terminal import Terminal
from tests.fixtures.waiting import eventually


def test_it_ends_by_itself_with_every_task_accounted_for(tmp_path: Path) -> None:
    done = demo(cwd=tmp_path, DEMO_SECONDS="1")

    assert done.returncode == 0, done.stderr
    assert "Every task is there" in done.stdout
    assert "0 lost" in done.stdout
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.backends("sqlite-file", "postgres-newest")
def test_sigterm_ends_it_with_every_task_accounted_for_and_those_of_others_alone(database_url: str) -> None:
    command = [sys.executable, "-m", "tasklib", "demo", "--json", "--seconds", "600", "--database-url", database_url]
    with TaskQueue(database_url) as queue:
        own = queue.enqueue("send_email", {"to": "a real customer"})
        process = python.popen(command, stdout=subprocess.PIPE, text=True)
        eventually(lambda: everything_happened(queue))
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=180)

        said, stats = json.loads(printed), queue.stats()
        scheduled = sum(queue.count(name=name) for name in stats.by_name if name.endswith("check_health"))
        assert queue.get(own).attempts == 0
        assert (process.returncode, queue.workers(), queue.schedules(), queue.limits()) == (0, [], [], [])
    assert said["balanced"] is True
    assert said["submitted"] == stats.total - scheduled - 1
    assert said["submitted"] == said["completed"] + said["failed"] + said["cancelled"] + said["waiting"]
    assert (said["completed"], said["failed"], said["cancelled"]) == (
        stats.completed - scheduled,
        stats.failed - stats.retrying,
        stats.cancelled,
    )
    assert (said["lost"], said["wrong"]) == (0, [])


def everything_happened(queue: TaskQueue) -> bool:
    """Tasks were completed, failed for good after retries, and cancelled."""
    stats = queue.stats()
    return bool(stats.completed > 20 and stats.failed > stats.retrying and stats.cancelled)


def test_what_it_shows_moves_on_a_terminal_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    terminal = Terminal([sys.executable, "-m", "tasklib", "demo"], cwd=tmp_path)
    terminal.wait_for("tasks/s")
    terminal.wait_for("completed")
    terminal.send("\x03")

    assert terminal.wait() == 0
    assert "Every task is there" in terminal.text


def test_its_dashboard_answers_while_it_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tasklib", "demo", "--seconds", "60", "--port", "0"]
    with python.popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        page = httpx.get(address, timeout=180)
        done = eventually(lambda: httpx.get(f"{address}api/tasks/stats", timeout=180).json()["completed"])
        process.send_signal(signal.SIGTERM)
        process.stdout.read()

    assert (page.status_code, process.returncode) == (200, 0)
    assert "tasklib-root" in page.text
    assert done > 0


@pytest.mark.parametrize("value", ["soon", "nan"])
def test_a_wrong_demo_seconds_is_said(value: str) -> None:
    done = demo(DEMO_SECONDS=value)
    assert done.returncode == 2
    assert done.stderr.startswith("error: DEMO_SECONDS must be")


def demo(*arguments: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "TASKLIB_DATABASE_URL")}
    command = [sys.executable, "-m", "tasklib", "demo", *arguments]
    return python.run(command, env=environment | variables, cwd=cwd, capture_output=True, text=True, timeout=180)
