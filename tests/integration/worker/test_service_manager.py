"""A service manager such as systemd is told when a service is ready, that it lives, and that it stops."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasklib import TaskQueue
from tasklib.worker.service_manager import ServiceManager
from tests.fixtures import python
from tests.fixtures.waiting import PATIENCE

WORKER = ("worker", "examples.simple", "--grace", "1")
COMMANDS = {
    "worker": (*WORKER, "--processes", "1"),
    "worker alone": (*WORKER, "--processes", "0"),
    "serve": ("serve", "--port", "0"),
}


@contextmanager
def started(words: tuple[str, ...], url: str, address: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {"DATABASE_URL": url, "NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000"}
    environment.pop("WATCHDOG_PID", None)
    command = [sys.executable, "-m", "tasklib", *words]
    process = python.popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_service_says_that_it_is_ready_lives_and_stops(
    words: tuple[str, ...], sqlite_url: str, tmp_path: Path
) -> None:
    # Linux alone has names without a file; they are tried with one of the commands.
    abstract = sys.platform == "linux" and words == COMMANDS["worker alone"]
    with TaskQueue(sqlite_url) as queue:
        queue.migrate()
    address = f"@tasklib-{os.getpid()}-{tmp_path.name}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + address[1:] if abstract else address)
        manager.settimeout(PATIENCE)
        with started(words, sqlite_url, address) as process:
            heard = [manager.recv(4096).decode()]
            while not any(word.startswith("READY=1") for word in heard) or heard[-1] != "WATCHDOG=1":
                heard.append(manager.recv(4096).decode())
            assert f"READY=1\nMAINPID={process.pid}" in heard
            assert set(heard) <= {"WATCHDOG=1", f"READY=1\nMAINPID={process.pid}"}
            process.send_signal(signal.SIGTERM)
            while heard[-1] != "STOPPING=1":
                heard.append(manager.recv(4096).decode())
            assert process.wait(PATIENCE) == 0


def test_a_manager_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    ServiceManager(str(tmp_path / "nobody")).notify("READY=1")
    ServiceManager.of({}).notify("READY=1")


def test_the_watchdog_is_for_the_process_that_is_meant() -> None:
    given = {"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "30000000"}
    assert ServiceManager.of(given).watchdog_seconds == 30.0
    assert ServiceManager.of(given | {"WATCHDOG_PID": str(os.getpid())}).watchdog_seconds == 30.0
    assert ServiceManager.of(given | {"WATCHDOG_PID": "1"}).watchdog_seconds is None
    assert ServiceManager.of(given | {"WATCHDOG_USEC": "soon"}).watchdog_seconds is None
    assert ServiceManager.of({"WATCHDOG_USEC": "30000000"}).watchdog_seconds is None
