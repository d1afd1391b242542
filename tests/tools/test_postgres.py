"""Throwaway servers work, keep what a durable server must keep, and never stay behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.fixtures.waiting import eventually
from tools.postgres import Installation, available, shared, start
from tools.problems import ROOT


@pytest.mark.parametrize("installation", available(), ids=lambda installation: f"postgres-{installation.version}")
def test_server_answers_and_leaves_nothing(installation: Installation) -> None:
    with start(installation, settings={"work_mem": "5MB"}) as server:
        with psycopg.connect(server.url) as connection:
            assert connection.info.server_version // 10000 == installation.version
            assert connection.execute("SHOW work_mem").fetchone() == ("5MB",)
        with psycopg.connect(server.socket_url) as connection:
            assert connection.execute("SHOW fsync").fetchone() == ("off",)
        pid = server.pid
    assert not psutil.pid_exists(pid)
    assert not server.directory.exists()


def test_durable_server_keeps_commits_through_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(shared.VARIABLE)  # Its programs and its data are its own, as they are outside the tests.
    with start(available()[0], durable=True) as server:
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1")
        server.crash()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.url)
        server.restart()
        with psycopg.connect(server.url) as connection:
            assert connection.execute("TABLE kept").fetchall() == [(1,)]


def test_server_that_cannot_start_says_why() -> None:
    with pytest.raises(RuntimeError, match="no_such_setting"):
        start(available()[0], settings={"no_such_setting": "1"})


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_server_ends_with_its_owner(end: signal.Signals) -> None:
    command = [sys.executable, "-m", "tools.postgres", str(available()[0].version)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        url = owner.stdout.readline().strip()
        with psycopg.connect(url) as connection:
            row = connection.execute("SHOW data_directory").fetchone()
            pid = connection.info.backend_pid
        assert row is not None
        owner.send_signal(end)
    eventually(lambda: not Path(row[0]).parent.exists())
    eventually(lambda: not psutil.pid_exists(pid))
