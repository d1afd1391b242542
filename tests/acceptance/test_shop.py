"""The example shop: its own tests pass, and under a real server a deployment waits for the running task."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import httpx

from tasklib import TaskQueue
from tests.chaos.judging import Watch
from tests.chaos.judging import watch as watch
from tests.fixtures import python
from tests.fixtures.backends import libpq_url
from tests.fixtures.waiting import eventually
from tools.problems import ROOT

SHOP = ROOT / "examples" / "shop"


def environment(url: str) -> dict[str, str]:
    silence = {"TASKLIB_WORKER_TIMEOUT_SECONDS": "5", "TASKLIB_HEARTBEAT_INTERVAL_SECONDS": "1"}
    return {**os.environ, **silence, "DATABASE_URL": libpq_url(url), "SHOP_ADMIN_PASSWORD": "secret"}


def test_its_own_tests_pass(newest_postgres_url: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = python.run(
        command, cwd=SHOP, env=environment(newest_postgres_url), capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def test_sigterm_waits_for_the_inventory_and_a_kill_loses_no_order(newest_postgres_url: str, watch: Watch) -> None:
    watch(newest_postgres_url, None)
    with TaskQueue(libpq_url(newest_postgres_url)) as queue:
        first, url = serve(newest_postgres_url)
        inventory = httpx.post(f"{url}/inventory?seconds=3", timeout=180).json()["task"]
        eventually(lambda: queue.get(inventory).state == "running")  # type: ignore[union-attr]
        first.send_signal(signal.SIGTERM)
        first.wait(180)
        task = queue.get(inventory)
        assert task is not None
        assert (task.state, task.attempts) == ("completed", 1)

        second, url = serve(newest_postgres_url)
        orders = [
            httpx.post(f"{url}/orders", json={"product": "kettle", "email": "ada@example.com"}, timeout=180).json()
            for _ in range(3)
        ]
        second.kill()
        second.wait(180)
        third, url = serve(newest_postgres_url)
        assert {queue.wait(each["task"], timeout=100).state for each in orders} == {"completed"}
        states = [httpx.get(f"{url}/orders/{each['order']}", timeout=180).json()["state"] for each in orders]
        assert states == ["packed"] * 3
        third.terminate()
        third.wait(180)


def serve(url: str) -> tuple[subprocess.Popen[bytes], str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port), "--log-level", "warning"]
    server = python.popen(command, cwd=SHOP, env=environment(url))
    eventually(lambda: is_up(port))
    return server, f"http://127.0.0.1:{port}"


def is_up(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/openapi.json", timeout=180).status_code == 200
    except httpx.TransportError:
        return False
