"""Seed 003, "Task Queue" of Evidential: every code block, on every database."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasklib import Config, Task, TaskQueue
from tests.acceptance.seeds.support import FailsAtFirst, Shell, read, states_of
from tests.fixtures import python
from tests.fixtures.waiting import aeventually, eventually

OpenShell = Callable[[TaskQueue], Shell]

INSERT = """
INSERT INTO tasks (name, kwargs)
VALUES ('webhook.outbound',
        '{"url": "https://example.com", "method": "POST"}')
"""


@pytest.mark.backends("sqlite-file", "postgres")  # a database in memory has no other program that could insert
async def test_block_01_task_queue_flow(database_url: str, shell: OpenShell) -> None:
    """Task Queue Flow: an INSERT wakes the idle service, the handler is called, failures are tried again later."""
    config = Config(database_url, base_retry_delay_seconds=0.01, poll_interval_seconds=60)
    async with TaskQueue(config) as queue:
        handler = FailsAtFirst(2, "delivered")
        queue.register_handler("webhook.outbound", handler)
        outside = shell(queue)
        service = asyncio.ensure_future(queue.arun(signals=False))
        await aeventually(lambda: [worker.alive for worker in queue.workers()] == [True])

        outside.run(INSERT)
        task = await aeventually(lambda: next(iter(queue.list(state="completed")), None))
        service.cancel()
        await asyncio.gather(service, return_exceptions=True)

    assert task is not None
    assert (task.result, handler.attempts) == ({"value": "delivered"}, 3)
    assert (task.attempts, task.retry_count) == (3, 2)


@pytest.mark.parametrize(
    "failures, expected",
    [(0, ["pending", "running", "completed"]), (1, ["pending", "running", "failed", "running", "completed"])],
    ids=["success", "retry"],
)
def test_block_02_task_states(failures: int, expected: list[str], queue: TaskQueue) -> None:
    """Task States: `success` is `completed` here, and what waits for its retry is `failed` with next_retry_at."""
    assert states_of(queue, FailsAtFirst(failures), max_attempts=11) == expected


def test_block_02_dead(queue: TaskQueue) -> None:
    """Task States: `dead` after ten retries is `failed` with completed_at here."""
    states = states_of(queue, FailsAtFirst(99), max_attempts=11)

    (task,) = queue.list()
    assert states.count("running") == 11
    assert (task.state, task.retry_count, task.completed_at is not None) == ("failed", 10, True)


@pytest.mark.backends("sqlite-file", "postgres")  # another program works on it
def test_block_03_start_the_service(database_url: str, tmp_path: Path, shell: OpenShell) -> None:
    """Running the Task Queue Service: `tasklib worker`, with the database in DATABASE_URL."""
    (tmp_path / "handlers.py").write_text(
        "from tasklib import TaskQueue\n"
        "queue = TaskQueue()\n"
        'queue.register_handler("webhook.outbound", lambda payload: payload["url"])\n'
    )
    with TaskQueue(database_url) as queue:
        shell(queue).run(INSERT)
        service = python.popen(
            [sys.executable, "-m", "tasklib", "worker", "handlers"],
            cwd=tmp_path,
            env=os.environ | {"DATABASE_URL": database_url},
            stdout=subprocess.DEVNULL,
        )
        try:
            task = eventually(lambda: next(iter(queue.list(state="completed")), None))
        finally:
            service.send_signal(signal.SIGTERM)
            assert service.wait(180) == 0

    assert task is not None
    assert task.result == {"value": "https://example.com"}


def test_block_04_enqueue_by_insert(queue: TaskQueue, shell: OpenShell) -> None:
    """Enqueuing a Task: two columns are enough; the id is made by the database."""
    shell(queue).run(INSERT)

    (task,) = queue.list()
    assert (task.name, task.state) == ("webhook.outbound", "pending")
    assert task.payload == {"url": "https://example.com", "method": "POST"}


def test_block_04_enqueue_by_insert_with_an_id(queue: TaskQueue, shell: OpenShell) -> None:
    """Enqueuing a Task: an id of one's own is a UUID."""
    shell(queue).run(
        "INSERT INTO tasks (id, name, kwargs) VALUES ('550e8400-e29b-41d4-a716-446655440001', 'webhook.outbound', '{}')"
    )

    assert queue.get("550e8400-e29b-41d4-a716-446655440001") is not None


def test_block_05_implement_a_handler(queue: TaskQueue) -> None:
    """Implementing a Handler: it takes the Task, whose payload is read already; no `json.loads` is needed."""
    requests: list[tuple[str, str]] = []

    def post(method: str, url: str) -> None:
        requests.append((method, url))

    def webhook_handler(task: Task) -> None:
        payload = task.payload
        post(payload["method"], payload["url"])

    # register the handler before queue.run().
    queue.register_handler("webhook.outbound", webhook_handler)
    task_id = queue.enqueue("webhook.outbound", {"url": "https://example.com", "method": "POST"})
    queue.process_batch()

    assert requests == [("POST", "https://example.com")]
    assert read(queue, task_id).state == "completed"


def test_block_05_a_payload_stored_as_text_stays_text(queue: TaskQueue) -> None:
    """Implementing a Handler: who stores JSON as a string gets the string, and reads it as the seed does."""

    def webhook_handler(task: Task) -> Any:
        return json.loads(task.payload)["url"]

    queue.register_handler("webhook.outbound", webhook_handler)
    task_id = queue.enqueue("webhook.outbound", '{"url": "https://example.com"}')
    queue.process_batch()

    assert read(queue, task_id).result == {"value": "https://example.com"}
