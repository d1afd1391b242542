"""Seed 002, section 5: what each route takes and answers, to the letter."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import httpx

from tasklib import (
    TaskQueue,
)
from tests.acceptance.seeds.support import fail, read

CREATE = {
    "type": "send_email",
    "payload": {"to": "user@example.com", "subject": "Welcome"},
    "options": {"maxAttempts": 3, "runAfter": "2025-01-15T10:00:00Z"},
}


async def test_block_26_create_request(queue: TaskQueue, http: httpx.AsyncClient) -> None:
    """POST /api/tasks, request: type, payload and options as printed are stored."""
    response = await http.post("/api/tasks", json=CREATE)

    task = read(queue, UUID(response.json()["id"]))
    assert (task.name, task.payload, task.max_attempts) == ("send_email", CREATE["payload"], 3)
    assert task.scheduled_at == datetime(2025, 1, 15, 10, tzinfo=UTC)


async def test_block_27_create_response(http: httpx.AsyncClient) -> None:
    """POST /api/tasks, response: 201 with the id, the type, the status and the time; a bad request is 400."""
    response = await http.post("/api/tasks", json=CREATE)

    assert response.status_code == 201
    body = response.json()
    assert (body["type"], body["status"]) == ("send_email", "pending")
    assert body["createdAt"].endswith("Z")
    assert UUID(body["id"])
    assert (await http.post("/api/tasks", json={"payload": {}})).status_code == 400
    bare = await http.post("/api/tasks", json={"type": "send_email"})  # no field but the type is called needed there
    assert bare.status_code == 201
    assert (await http.get(f"/api/tasks/{bare.json()['id']}")).json()["payload"] == {}


async def test_block_28_get_response(queue: TaskQueue, http: httpx.AsyncClient) -> None:
    """GET /api/tasks/:id, response: the fields printed there; an unknown id is 404."""
    queue.register_handler("send_email", lambda payload: {"messageId": "abc123"})
    task_id = await queue.aenqueue("send_email", {"to": "user@example.com"})
    await queue.aprocess_batch()

    response = await http.get(f"/api/tasks/{task_id}")

    assert response.status_code == 200
    body = response.json()
    expected = {
        "id": str(task_id),
        "type": "send_email",
        "payload": {"to": "user@example.com"},
        "status": "completed",
        "attempts": 1,
        "result": {"messageId": "abc123"},
        "error": None,
    }
    assert {key: body[key] for key in expected} == expected
    assert body["createdAt"].endswith("Z")
    assert body["completedAt"].endswith("Z")
    assert (await http.get("/api/tasks/550e8400-e29b-41d4-a716-446655440000")).status_code == 404


async def test_block_29_list_response(queue: TaskQueue, http: httpx.AsyncClient) -> None:
    """GET /api/tasks, response: a page of tasks with total, limit and offset; limit is 50 and at most 100."""
    for _ in range(3):
        await queue.aenqueue("send_email")
    await queue.aenqueue("other")

    body = (await http.get("/api/tasks", params={"type": "send_email", "status": ["failed", "pending"]})).json()

    assert (body["total"], body["limit"], body["offset"]) == (3, 50, 0)
    assert [{key: task[key] for key in ("type", "status")} for task in body["tasks"]] == [
        {"type": "send_email", "status": "pending"}
    ] * 3
    assert (await http.get("/api/tasks", params={"limit": 101})).status_code == 400


async def test_block_30_retry_response(queue: TaskQueue, http: httpx.AsyncClient) -> None:
    """POST /api/tasks/:id/retry, response: pending from zero attempts; a task that is not failed is 400."""
    queue.register_handler("test", fail)
    task_id = await queue.aenqueue("test", max_attempts=1)
    assert (await http.post(f"/api/tasks/{task_id}/retry")).status_code == 400
    await queue.aprocess_batch()

    response = await http.post(f"/api/tasks/{task_id}/retry")

    assert response.status_code == 200
    expected = {"id": str(task_id), "status": "pending", "attempts": 0, "nextRetryAt": None}
    assert {key: response.json()[key] for key in expected} == expected


async def test_block_31_stats_response(queue: TaskQueue, http: httpx.AsyncClient) -> None:
    """GET /api/tasks/stats, response: counts by status, in all and by type."""
    queue.register_handler("send_email", lambda payload: None)
    await queue.aenqueue("send_email")
    await queue.aprocess_batch()
    await queue.aenqueue("send_email")

    body = (await http.get("/api/tasks/stats")).json()

    expected = {"pending": 1, "processing": 0, "completed": 1, "failed": 0}
    assert {key: body[key] for key in expected} == expected
    assert {key: body["byType"]["send_email"][key] for key in expected} == expected


async def test_block_32_pause_response(queue: TaskQueue, http: httpx.AsyncClient) -> None:
    """POST /api/tasks/pause, response."""
    response = await http.post("/api/tasks/pause")

    assert (response.status_code, response.json()["paused"]) == (200, True)
    assert await queue.ais_paused()


async def test_block_33_resume_response(queue: TaskQueue, http: httpx.AsyncClient) -> None:
    """POST /api/tasks/resume, response."""
    await queue.apause()

    response = await http.post("/api/tasks/resume")

    assert (response.status_code, response.json()["paused"]) == (200, False)
    assert not await queue.ais_paused()


async def test_block_34_rate_limit_request(queue: TaskQueue, http: httpx.AsyncClient) -> None:
    """POST /api/tasks/rate-limit, request: tasks per second, 0 for unlimited."""
    await http.post("/api/tasks/rate-limit", json={"tasksPerSecond": 10})
    assert await queue.aget_rate_limit() == 10

    await http.post("/api/tasks/rate-limit", json={"tasksPerSecond": 0})
    assert await queue.aget_rate_limit() == 0


async def test_block_35_rate_limit_response(http: httpx.AsyncClient) -> None:
    """POST /api/tasks/rate-limit, response."""
    response = await http.post("/api/tasks/rate-limit", json={"tasksPerSecond": 10})

    assert (response.status_code, response.json()["tasksPerSecond"]) == (200, 10)


async def test_block_36_clean_up_response(queue: TaskQueue, http: httpx.AsyncClient) -> None:
    """DELETE /api/tasks, response: how many completed tasks were older; an invalid moment is 400."""
    queue.register_handler("test", lambda payload: None)
    for _ in range(2):
        await queue.aenqueue("test")
    await queue.aprocess_batch()

    response = await http.delete("/api/tasks", params={"olderThan": "2099-01-01T00:00:00Z"})

    assert (response.status_code, response.json()) == (200, {"deleted": 2})
    assert (await http.delete("/api/tasks", params={"olderThan": "yesterday"})).status_code == 400
