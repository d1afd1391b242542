"""A worker removes finished tasks whose retention has passed, by itself."""

from __future__ import annotations

import asyncio

import pytest

from tasklib import Config, TaskQueue
from tasklib.worker import janitor


@pytest.mark.backends("sqlite-memory", "postgres-newest")
async def test_a_worker_removes_what_was_kept_for_long_enough(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(janitor, "EVERY_SECONDS", 0.02)
    async with TaskQueue(Config(database_url, retention="completed=0s")) as queue:
        queue.register_handler("job", lambda payload: None)
        queue.register_handler("bad", _fail)
        await queue.aenqueue("job")
        await queue.aenqueue("bad", max_attempts=1)
        worker = asyncio.ensure_future(queue.arun(signals=False))
        async with asyncio.timeout(60):
            while [str(task.state) for task in await queue.alist()] != ["failed"]:
                await asyncio.sleep(0.02)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


def _fail(payload: object) -> None:
    raise ValueError("no")
