"""A worker removes finished tasks whose retention has passed, by itself."""

from __future__ import annotations

import asyncio

import pytest

from tasklib import Config, TaskQueue
from tasklib.worker.upkeep import retention
from tests.fixtures.waiting import eventually


@pytest.mark.backends("sqlite-memory", "postgres-newest")
async def test_a_worker_removes_what_was_kept_for_long_enough(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "EVERY_SECONDS", 0.02)
    async with TaskQueue(Config(database_url, retention="completed=0s")) as queue:
        queue.register_handler("job", lambda payload: None)
        queue.register_handler("bad", _fail)
        await queue.aenqueue("job")
        await queue.aenqueue("bad", max_attempts=1)
        worker = asyncio.ensure_future(queue.arun(signals=False))
        await asyncio.to_thread(eventually, lambda: [str(task.state) for task in queue.list()] == ["failed"], 60)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


def _fail(payload: object) -> None:
    raise ValueError("no")
