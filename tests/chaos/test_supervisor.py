"""The supervisor: worker processes are replaced, looked after, and ended, and never left alone for long."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from tests.chaos.conftest import WORKER_TIMEOUT, StartFleet
from tests.chaos.fleet import ROOT
from tests.fixtures import python
from tests.fixtures.waiting import PATIENCE, eventually


def test_a_worker_process_that_dies_is_replaced_and_its_tasks_run_again_at_once(
    sqlite_url: str, start_fleet: StartFleet
):
    # Nobody waits for the heartbeat to be missed.
    fleet, queue = start_fleet(sqlite_url, worker_timeout_seconds=300)
    service = fleet.start("--concurrency", "1")
    [victim] = service.workers()
    ids = [queue.enqueue("gated") for _ in range(2)]
    eventually(fleet.ledger.starts)

    os.kill(victim, signal.SIGKILL)
    fleet.open_gate()

    tasks = [queue.wait(task_id, timeout=180) for task_id in ids]
    assert [(task.state, task.lost_count) for task in tasks] == [("completed", 1), ("completed", 0)]
    assert victim not in service.workers()
    assert f"worker process {victim} was ended by SIGKILL" in service.log
    fleet.stop()


def test_worker_processes_whose_supervisor_was_killed_finish_their_tasks_and_end(
    newest_postgres_url: str, start_fleet: StartFleet
):
    fleet, queue = start_fleet(newest_postgres_url, worker_timeout_seconds=30)
    service = fleet.start("--concurrency", "2", processes=2)
    ids = [queue.enqueue(name) for name in ("gated", "gated_thread", "gated", "gated_thread")]
    eventually(lambda: len(fleet.ledger.starts()) == 4)

    service.signal(signal.SIGKILL)
    service.wait(PATIENCE)
    fleet.open_gate()

    eventually(lambda: not fleet.processes())
    assert [(queue.get(i).state, queue.get(i).attempts) for i in ids] == [("completed", 1)] * 4
    assert queue.workers() == []
    assert service.log.count("the supervisor is gone") == 2


@pytest.mark.chaos
@pytest.mark.alone
def test_workers_beat_themselves_while_their_supervisor_is_stopped(sqlite_url: str, start_fleet: StartFleet):
    fleet, queue = start_fleet(sqlite_url)
    service = fleet.start("--concurrency", "1")
    other = fleet.start("--concurrency", "1")  # who would take over
    first = queue.enqueue("nap", {"seconds": 3 * WORKER_TIMEOUT})
    eventually(fleet.ledger.starts)
    [entry] = fleet.ledger.starts()
    supervisor = service if entry.pid in service.workers() else other

    supervisor.signal(signal.SIGSTOP)
    task = queue.wait(first, timeout=180)
    supervisor.signal(signal.SIGCONT)

    assert (task.state, task.attempts) == ("completed", 1)
    assert entry.pid in supervisor.workers()
    fleet.stop()


def test_a_process_whose_loop_is_silent_past_its_lease_is_ended_and_says_where_it_hung(
    sqlite_url: str, start_fleet: StartFleet
):
    fleet, queue = start_fleet(sqlite_url, lock_timeout_seconds=2)
    service = fleet.start("--concurrency", "1")
    [stuck] = service.workers()
    task_id = queue.enqueue("block_loop", {"seconds": 600}, max_attempts=1)

    task = queue.wait(task_id, timeout=180)

    assert (task.state, len(fleet.ledger.starts())) == ("buried", 1)
    eventually(lambda: stuck not in service.workers())
    assert f"the event loop of worker process {stuck} has not responded" in service.log
    assert "in block_loop" in service.log
    fleet.stop()


def test_a_worker_with_too_many_stuck_threads_is_replaced(sqlite_url: str, start_fleet: StartFleet):
    fleet, queue = start_fleet(sqlite_url)
    service = fleet.start("--concurrency", "10")
    [stuck] = service.workers()
    for _ in range(10):
        queue.enqueue("work", {"seconds": 600}, max_attempts=1, timeout_seconds=0.5)

    eventually(lambda: service.workers() and stuck not in service.workers())

    fleet.wait_working(service, 1)
    assert queue.count(state="failed") == 10
    assert f"worker process {stuck} ended with code 4" in service.log
    fleet.stop()


def test_probes_tell_alive_from_ready(sqlite_url: str, start_fleet: StartFleet):
    fleet, _ = start_fleet(sqlite_url)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def ask(path: str) -> tuple[int, dict]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=180) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)
        except OSError as error:
            raise AssertionError(error) from error

    service = fleet.start("--probe-port", str(port), processes=2)
    eventually(lambda: ask("/readyz")[0] == 200)
    assert [process["pid"] for process in ask("/livez")[1]["processes"]] == service.workers()

    for pid in service.workers():
        os.kill(pid, signal.SIGSTOP)

    eventually(lambda: ask("/readyz")[0] == 503)
    assert ask("/livez")[0] == 200
    assert ask("/")[0] == 404
    for pid in service.workers():
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: ask("/readyz")[0] == 200)
    fleet.stop()


@pytest.mark.parametrize(
    "program, url, code, message",
    [
        ("import nowhere", "sqlite:///{folder}/t.db", 1, "cannot import broken: ModuleNotFoundError"),
        (
            "import tasklib\n@tasklib.task\ndef job(): ...",
            "postgresql://postgres@127.0.0.1:1/none",
            3,
            "cannot connect to postgresql://postgres@127.0.0.1:1/none",
        ),
    ],
    ids=["cannot be imported", "no database"],
)
def test_a_worker_that_cannot_start_says_why_once_and_ends_so(
    tmp_path: Path, program: str, url: str, code: int, message: str
):
    (tmp_path / "broken.py").write_text(program)
    environment = {**os.environ, "DATABASE_URL": url.format(folder=tmp_path), "PYTHONPATH": str(ROOT / "src")}

    ended = python.run(
        [sys.executable, "-m", "tasklib", "worker", "broken", "--processes", "3"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
    )

    assert ended.returncode == code, ended.stderr
    assert ended.stderr.count(message) == 1, ended.stderr
    assert not [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(tmp_path)]
