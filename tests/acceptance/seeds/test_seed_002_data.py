"""Seed 002, section 3: the table, the states and the data, in Python's spelling."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
import pytest

from tasklib import (
    TaskQueue,
)
from tests.acceptance.seeds.support import FailsAtFirst, OpenShell, advance, fail, read, states_of


def test_block_11_indexes(queue: TaskQueue, shell: OpenShell) -> None:
    """3.1 Database Schema, indexes: the three statements run with our column names, and tasks run as before.

    They are not needed: `tasks_claim` serves the worker, and listing walks the insertion order.
    """
    shell(queue).script(
        """
        CREATE INDEX idx_tasks_pending ON tasks(state, created_at ASC, next_retry_at)
        WHERE state IN ('pending', 'failed');
        CREATE INDEX idx_tasks_type ON tasks(name, state);
        CREATE INDEX idx_tasks_created ON tasks(created_at DESC);
        """
    )
    queue.register_handler("send_email", lambda payload: "sent")

    task_id = queue.enqueue("send_email")
    queue.process_batch()

    assert read(queue, task_id).result == {"value": "sent"}


@pytest.mark.parametrize(
    "failures, max_attempts, expected",
    [
        (0, 3, ["pending", "running", "completed"]),
        (1, 3, ["pending", "running", "failed", "running", "completed"]),
        (2, 2, ["pending", "running", "failed", "running", "failed"]),
    ],
    ids=["succeeds", "succeeds-after-a-retry", "gives-up"],
)
def test_block_12_status_transitions(failures: int, max_attempts: int, expected: list[str], queue: TaskQueue) -> None:
    """3.1 Database Schema, status transitions: `processing` is `running` here, and a retry is claimed as it is."""
    assert states_of(queue, FailsAtFirst(failures), max_attempts=max_attempts) == expected


def test_block_13_enqueue_options(queue: TaskQueue) -> None:
    """3.2 JSON Data Structures, EnqueueOptions: three attempts by default, and not before a moment."""
    when = datetime(2035, 1, 15, 10, tzinfo=UTC)

    plain, chosen = queue.enqueue("send_email"), queue.enqueue("send_email", {}, max_attempts=5, run_after=when)

    assert read(queue, plain).max_attempts == 3
    assert (read(queue, chosen).max_attempts, read(queue, chosen).scheduled_at) == (5, when)


def test_block_14_task(queue: TaskQueue) -> None:
    """3.2 JSON Data Structures, Task: a task completed at the second attempt; `runAfter` and JSON come with HTTP."""
    queue.register_handler("send_email", FailsAtFirst(1, {"messageId": "abc123"}))
    task_id = queue.enqueue("send_email", {"to": "user@example.com", "subject": "Welcome"})
    queue.process_batch()
    advance(queue, minutes=5)
    queue.process_batch()

    task = read(queue, task_id)
    assert (task.name, task.payload) == ("send_email", {"to": "user@example.com", "subject": "Welcome"})
    assert (task.state, task.attempts, task.max_attempts) == ("completed", 2, 3)
    assert (task.next_retry_at, task.result, task.error) == (None, {"value": {"messageId": "abc123"}}, None)
    assert task.started_at is not None
    assert task.completed_at is not None
    assert task.created_at < task.started_at <= task.completed_at <= task.updated_at


async def test_block_14_task_over_http(queue: TaskQueue, http: httpx.AsyncClient) -> None:
    """3.2 JSON Data Structures, Task: the same task as JSON has every field printed there, with such values."""
    queue.register_handler("send_email", FailsAtFirst(1, {"messageId": "abc123"}))
    task_id = await queue.aenqueue("send_email", {"to": "user@example.com", "subject": "Welcome"})
    await queue.aprocess_batch()
    advance(queue, minutes=5)
    await queue.aprocess_batch()

    body = (await http.get(f"/api/tasks/{task_id}")).json()

    expected = {
        "id": str(task_id),
        "type": "send_email",
        "payload": {"to": "user@example.com", "subject": "Welcome"},
        "status": "completed",
        "attempts": 2,
        "maxAttempts": 3,
        "nextRetryAt": None,
        "result": {"messageId": "abc123"},
        "error": None,
        "runAfter": None,
    }
    assert {key: body[key] for key in expected} == expected
    for moment in ("lastAttemptAt", "createdAt", "updatedAt", "completedAt"):
        assert body[moment].endswith("Z")


def test_block_15_list_filters(queue: TaskQueue) -> None:
    """3.2 JSON Data Structures, ListFilters: type, one status or several, limit and offset."""
    queue.register_handler("send_email", fail)
    for _ in range(3):
        queue.enqueue("send_email", max_attempts=1)
    queue.process_batch()
    queue.enqueue("send_email")
    queue.enqueue("other")

    assert len(queue.list(name="send_email", state="failed", limit=50, offset=0)) == 3
    assert len(queue.list(name="send_email", state=["failed", "pending"])) == 4
    assert len(queue.list(name="send_email", state="failed", limit=2)) == 2
    assert len(queue.list(name="send_email", state="failed", limit=50, offset=2)) == 1


def test_block_16_queue_stats(queue: TaskQueue) -> None:
    """3.2 JSON Data Structures, QueueStats: counts by status, in all and by type."""
    queue.register_handler("send_email", lambda payload: None)
    queue.register_handler("process_image", fail)
    for name, number in (("send_email", 2), ("process_image", 1)):
        for _ in range(number):
            queue.enqueue(name, max_attempts=1)
    queue.process_batch()
    queue.enqueue("send_email")
    queue.enqueue("process_image")

    stats = queue.stats()

    assert (stats.pending, stats.running, stats.completed, stats.failed) == (2, 0, 2, 1)
    shown = {
        name: [counts[key] for key in ("pending", "completed", "failed")] for name, counts in stats.by_name.items()
    }
    assert shown == {"send_email": [1, 2, 0], "process_image": [1, 0, 1]}
