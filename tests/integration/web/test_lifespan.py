"""`lifespan=queue.lifespan(...)`: a worker beside a web application, under its real server."""

from __future__ import annotations

import asyncio
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.applications import Starlette

from tasklib import ConfigurationError, SchemaMismatch, TaskQueue
from tests.fixtures import python
from tests.fixtures.waiting import aeventually, eventually

APP = """
import os, time
from fastapi import FastAPI
from tasklib import TaskQueue

queue = TaskQueue({url!r})

@queue.task
def until_file(path: str) -> int:
    open(path + ".begun", "w").close()
    while not os.path.exists(path):
        time.sleep(0.01)
    return os.getpid()

app = FastAPI(lifespan=queue.lifespan(concurrency=2, grace_seconds=60, poll_interval_seconds=0.1))
app.mount("/queue", queue.asgi(auth=None))

@app.get("/")
async def who() -> int:
    return os.getpid()
"""


@pytest.fixture
def queue() -> Iterator[TaskQueue]:
    with TaskQueue("sqlite:///:memory:") as queue:
        yield queue


@contextmanager
def uvicorn(folder: Path, url: str, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A real server with the application above, killed at the end unless it has ended."""
    (folder / "app.py").write_text(APP.format(url=url))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port), "--log-level", "warning", *options]
    server = python.popen(command, cwd=folder)
    try:
        eventually(lambda: answers(f"http://127.0.0.1:{port}/"))
        yield server, f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(180)
        finally:
            server.kill()


def answers(url: str) -> int:
    try:
        return int(httpx.get(url, timeout=180).text)
    except httpx.TransportError:
        return 0


def test_sigterm_lets_a_running_task_finish(sqlite_url: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with TaskQueue(sqlite_url) as queue, uvicorn(tmp_path, sqlite_url) as (server, _):
        task_id = queue.enqueue("until_file", {"path": str(go)})
        eventually(lambda: Path(f"{go}.begun").exists())
        server.send_signal(signal.SIGTERM)
        waiting = queue.enqueue("until_file", {"path": str(go)})
        go.touch()
        assert server.wait(180) in (0, -signal.SIGTERM)
        done = queue.get(task_id)
        assert done is not None
        assert (done.state, done.attempts) == ("completed", 1)
        assert queue.get(waiting).state in ("pending", "completed")  # type: ignore[union-attr]
        assert queue.workers() == []  # signed off


def test_each_of_several_server_processes_has_a_worker_and_a_killed_one_loses_nothing(
    sqlite_url: str, tmp_path: Path
) -> None:
    with TaskQueue(sqlite_url) as queue, uvicorn(tmp_path, sqlite_url, "--workers", "2") as (_, url):
        eventually(lambda: len(queue.workers()) == 2)
        assert {each.pid for each in queue.workers()} >= {answers(url)}
        ids = [queue.enqueue("until_file", {"path": str(tmp_path / "app.py")}) for _ in range(20)]
        assert {queue.wait(each, timeout=180).state for each in ids} == {"completed"}
        assert httpx.get(f"{url}/queue/api/tasks/stats", timeout=180).json()["completed"] == 20


def test_a_reload_drains_and_starts_a_new_worker(sqlite_url: str, tmp_path: Path) -> None:
    options = ("--reload", "--reload-delay", "0.05")
    with TaskQueue(sqlite_url) as queue, uvicorn(tmp_path, sqlite_url, *options) as (_, url):
        (before,) = eventually(lambda: [each.pid for each in queue.workers()])
        text = (tmp_path / "app.py").read_text()
        eventually(lambda: (tmp_path / "app.py").write_text(f"{text}\n# edited") and answers(url) not in (0, before))
        (after,) = eventually(lambda: [each.pid for each in queue.workers() if each.pid != before])
        task_id = queue.enqueue("until_file", {"path": str(tmp_path / "app.py")})
        assert queue.wait(task_id, timeout=180).result == {"value": after}


def test_it_goes_inside_a_lifespan_of_your_own(queue: TaskQueue) -> None:
    order: list[str] = []

    @queue.task
    async def work() -> None:
        order.append("task")

    @queue.on_startup
    def start() -> None:
        order.append("worker starts")

    @queue.on_shutdown
    def stop() -> None:
        order.append("worker stops")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        order.append("app starts")
        async with queue.lifespan(concurrency=2)(app):
            yield {"pool": "open"}
        order.append("app stops")

    with TestClient(FastAPI(lifespan=lifespan)) as client:
        assert client.app_state == {"pool": "open"}
        queue.wait(work.submit(), timeout=180)
    assert order == ["app starts", "worker starts", "task", "worker stops", "app stops"]


def test_an_application_can_be_started_again(queue: TaskQueue) -> None:
    @queue.task
    def work() -> int:
        return 1

    app = Starlette(lifespan=queue.lifespan())
    for _ in range(2):
        with TestClient(app):
            assert queue.wait(work.submit(), timeout=180).result == {"value": 1}
        assert queue.workers() == []


def test_what_a_start_up_hook_raises_keeps_the_application_from_starting(queue: TaskQueue) -> None:
    @queue.on_startup
    def start() -> None:
        raise RuntimeError("no such bucket")

    with pytest.raises(RuntimeError, match="no such bucket"), TestClient(FastAPI(lifespan=queue.lifespan())):
        pytest.fail("it started")


def test_tables_of_another_version_keep_the_application_from_starting(sqlite_url: str) -> None:
    with TaskQueue(sqlite_url) as queue:
        queue.migrate()
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as raw:
        raw.execute("UPDATE tasklib_migrations SET checksum = 'other'")
    raw.close()
    with TaskQueue(sqlite_url) as queue, pytest.raises(SchemaMismatch), TestClient(FastAPI(lifespan=queue.lifespan())):
        pytest.fail("it started")


async def test_signals_are_left_alone(queue: TaskQueue) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    async with queue.lifespan()(None):
        await aeventually(queue.workers)
        assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before
    with pytest.raises(ConfigurationError, match="leaves signals to the server"):
        queue.lifespan(signals=True)


def test_a_wrong_setting_is_refused_when_the_application_is_made(queue: TaskQueue) -> None:
    with pytest.raises(ConfigurationError, match="concurrency must be a whole number, 1 or more, got 0"):
        queue.lifespan(concurrency=0)
    with pytest.raises(ConfigurationError, match="a worker has no setting concurency"):
        queue.lifespan(concurency=4)  # type: ignore[call-arg]


async def test_a_cancelled_shutdown_gives_tasks_back(queue: TaskQueue) -> None:
    begun, entered = asyncio.Event(), asyncio.Event()

    @queue.task
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def serve() -> None:
        async with queue.lifespan(grace_seconds=3600)(None):
            entered.set()
            await begun.wait()

    task_id = await endless.asubmit()
    serving = asyncio.create_task(serve())
    await begun.wait()
    await asyncio.sleep(0)
    serving.cancel()  # asked to end, and asked again while it drains
    await asyncio.sleep(0)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    task = await queue.aget(task_id)
    assert task is not None
    assert (task.state, task.attempts) == ("pending", 0)
