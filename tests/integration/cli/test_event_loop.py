"""The event loop of `tasklib worker`: uvloop where it is installed, asyncio's own where it is not."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tasklib import TaskQueue
from tasklib.core.time.event_loop import loop_factory
from tests.fixtures import python
from tests.fixtures.waiting import eventually

TASKS = """
import asyncio
import tasklib

@tasklib.task
async def which() -> str:
    await asyncio.sleep(0)
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]

@tasklib.task(max_retries=0)
async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
"""


@pytest.mark.backends("postgres")  # its connections are on the event loop; SQLite's are in threads
@pytest.mark.parametrize("processes", [None, "1"], ids=["alone", "supervised"])
@pytest.mark.parametrize("installed", ["uvloop", "asyncio"])
def test_a_worker_uses_uvloop_where_it_can(
    tmp_path: Path, database_url: str, installed: str, processes: str | None
) -> None:
    (tmp_path / "loop_tasks.py").write_text(TASKS)
    if installed == "asyncio":
        (tmp_path / "uvloop.py").write_text("raise ImportError('not here')")
    command = [sys.executable, "-m", "tasklib", "worker", "loop_tasks", "--database-url", database_url]
    command += ["--processes", processes] if processes else []
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    with TaskQueue(database_url) as queue:
        worker = python.popen(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path})
        try:
            ends, finds = queue.enqueue("stop_the_loop", max_attempts=1), queue.enqueue("which")
            eventually(lambda: queue.get(ends).completed_at is not None and queue.get(finds).completed_at is not None)
            assert queue.get(finds).result == {"value": installed}
            assert "cannot stop the event loop" in (queue.get(ends).error or "")
        finally:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait() == 0


def test_without_uvloop_asyncio_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loop_factory() is not None
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop_factory() is None
