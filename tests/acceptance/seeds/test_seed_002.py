"""Seed 002, "Task Queue System Specification": every block whose part exists, in Python's spelling, on every database.

The dashboard is not built yet: `docs/specifications.md` lists its blocks.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest

from tasklib import (
    Backoff,
    Config,
    InvalidArguments,
    ManualClock,
    NotInitialized,
    SchemaMissing,
    Task,
    TaskQueue,
    TaskState,
    tq,
)
from tasklib.fluent import Fluent
from tasklib.limits import TokenBucket
from tests.acceptance.seeds.support import FailsAtFirst, Shell, advance, fail, read, states_of, url_of
from tests.fixtures.waiting import aeventually, eventually

OpenShell = Callable[[TaskQueue], Shell]


@pytest.fixture
async def fluent(database_url: str) -> AsyncIterator[Fluent]:
    """`tq`, set up on each database and stopped after."""
    tq.init(database_url)
    yield tq
    await tq.stop()


@pytest.fixture
async def http(queue: TaskQueue) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service over the queue, which checks nobody."""
    transport = httpx.ASGITransport(queue.asgi(auth=None))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@pytest.mark.parametrize("payload", [{"a": 1}, [1, 2], "text", 7, None, True], ids=repr)
def test_block_01_a_handler_takes_json_and_returns_json(payload: Any, queue: TaskQueue) -> None:
    """2.1 Task Handler Interface, contract: any JSON in, any JSON out."""
    queue.register_handler("echo", lambda payload: {"got": payload})

    task_id = queue.enqueue("echo", payload)
    queue.process_batch()

    expected = {} if payload is None else payload
    assert read(queue, task_id).result == {"value": {"got": expected}}


def test_block_02_an_error_fails_the_task_and_a_result_completes_it(queue: TaskQueue) -> None:
    """2.1 Task Handler Interface, pseudocode: raising marks the task failed, returning marks it completed."""
    queue.register_handler("good", lambda payload: "done")
    queue.register_handler("bad", fail)

    good, bad = queue.enqueue("good"), queue.enqueue("bad")
    queue.process_batch()

    assert (read(queue, good).state, read(queue, bad).state) == (TaskState.COMPLETED, TaskState.FAILED)


async def test_block_03_an_async_handler(queue: TaskQueue) -> None:
    """2.1 Task Handler Interface, the JavaScript example: an async function of the payload."""
    sent: list[tuple[str, str, str]] = []

    async def handle_email_send(payload: dict[str, Any]) -> dict[str, str]:
        await asyncio.sleep(0)
        sent.append((payload["to"], payload["subject"], payload["body"]))
        return {"messageId": "abc123"}

    queue.register_handler("send_email", handle_email_send)
    task_id = await queue.aenqueue("send_email", {"to": "a@example.com", "subject": "Hi", "body": "Hello"})
    await queue.aprocess_batch()

    assert sent == [("a@example.com", "Hi", "Hello")]
    assert read(queue, task_id).result == {"value": {"messageId": "abc123"}}


def test_block_04_a_python_handler(queue: TaskQueue) -> None:
    """2.1 Task Handler Interface, the Python example."""
    sent: list[tuple[str, str, str]] = []

    def send_email(to: str, subject: str, body: str) -> None:
        sent.append((to, subject, body))

    def handle_email_send(payload):  # type: ignore[no-untyped-def]
        send_email(payload["to"], payload["subject"], payload["body"])
        return {"message_id": "abc123"}

    queue.register_handler("send_email", handle_email_send)
    task_id = queue.enqueue("send_email", {"to": "a@example.com", "subject": "Hi", "body": "Hello"})
    queue.process_batch()

    assert sent == [("a@example.com", "Hi", "Hello")]
    assert read(queue, task_id).result == {"value": {"message_id": "abc123"}}


def test_block_05_a_handler_that_returns_a_result_or_an_error(queue: TaskQueue) -> None:
    """2.1 Task Handler Interface, the Go example: what Go returns as `err`, Python raises."""

    def handle_email_send(payload: dict[str, str]) -> dict[str, str]:
        if "@" not in payload["to"]:
            raise ValueError(f"bad address {payload['to']}")
        return {"message_id": "abc123"}

    queue.register_handler("send_email", handle_email_send)
    good = queue.enqueue("send_email", {"to": "a@example.com"})
    bad = queue.enqueue("send_email", {"to": "nowhere"})
    queue.process_batch()

    assert read(queue, good).result == {"value": {"message_id": "abc123"}}
    assert "bad address nowhere" in (read(queue, bad).error or "")


def wait_for(queue: TaskQueue, number: int) -> list[Task]:
    """The completed tasks, once there are so many."""
    return eventually(lambda: found if len(found := queue.list(state="completed")) == number else None) or []


def test_block_06_the_methods_can_be_chained(fluent: Fluent) -> None:
    """2.2 Queue Interface, primary interface: each method answers the type itself."""
    crawl = fluent("crawl")

    chained = crawl.add({}).set_worker(print).set_worker_count(3).set_rate_limit(10).set_timeout(300)

    assert chained is crawl
    assert fluent("crawl") is crawl


def test_block_07_example_usage(fluent: Fluent) -> None:
    """2.2 Queue Interface, example usage: two types with their own workers and limits, and tasks added in chains."""
    crawled: list[str] = []

    async def crawl(payload: dict[str, str]) -> None:
        crawled.append(payload["url"])

    tq("crawl").set_worker(crawl).set_worker_count(3).set_rate_limit(10).set_timeout(300)
    tq("crawl").add({"url": "https://www.google.com/"})
    tq("crawl").add({"url": "https://www.baidu.com/"})
    tq("crawl").add({"url": "https://example.com/1"}).add({"url": "https://example.com/2"}).add(
        {"url": "https://example.com/3"}
    )
    tq("email").set_worker(lambda payload: f"sent to {payload['to']}").set_worker_count(1).set_rate_limit(5)
    tq("email").add({"to": "user@example.com", "subject": "Hello"})

    tasks = wait_for(fluent.queue, 6)
    assert len(set(crawled)) == 5
    assert [task.result for task in tasks if task.name == "email"] == [{"value": "sent to user@example.com"}]
    assert {task.timeout_seconds for task in tasks if task.name == "crawl"} == {300}


async def test_block_08_global_worker_control(fluent: Fluent) -> None:
    """2.2 Queue Interface, global worker control: pause and resume everything, statistics, and a graceful stop."""
    tq("crawl").set_worker(lambda payload: None)
    tq.pause()
    tq("crawl").add({"url": "https://example.com"})
    assert (tq.is_paused(), tq.stats().pending) == (True, 1)

    tq.resume()
    await aeventually(lambda: tq.stats().completed == 1)
    await tq.stop()

    assert not tq.is_running()


@dataclass
class CrawlPayload:
    """The payload of the TypeScript example."""

    url: str
    depth: int | None = None


def test_block_09_typed_payloads(fluent: Fluent) -> None:
    """2.2 Queue Interface, TypeScript support: the handler gets the declared type, a wrong field is refused at once."""

    def crawl(payload: CrawlPayload) -> str:
        return payload.url.upper()

    tq("crawl", payload=CrawlPayload).set_worker(crawl).add(CrawlPayload(url="https://example.com"))
    with pytest.raises(InvalidArguments, match="'url' is missing"):
        tq("crawl").add({"wrong": "field"})

    (task,) = wait_for(fluent.queue, 1)
    assert task.result == {"value": "HTTPS://EXAMPLE.COM"}


async def test_block_10_management_routes(http: httpx.AsyncClient) -> None:
    """2.3 Management API: each route of the list exists."""
    paths = (await http.get("/openapi.json")).json()["paths"]

    served = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert {
        ("GET", "/api/tasks/{task_id}"),
        ("GET", "/api/tasks"),
        ("POST", "/api/tasks/{task_id}/retry"),
        ("DELETE", "/api/tasks/{task_id}"),
        ("DELETE", "/api/tasks"),
        ("GET", "/api/tasks/stats"),
        ("POST", "/api/tasks/pause"),
        ("POST", "/api/tasks/resume"),
        ("POST", "/api/tasks/rate-limit"),
    } <= served


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
    assert stats.by_name == {
        "send_email": {"pending": 1, "completed": 2},
        "process_image": {"pending": 1, "failed": 1},
    }


def test_block_17_task_selection(queue: TaskQueue, shell: OpenShell) -> None:
    """4.2 Scheduler Module, task selection: what is due, oldest first; our column is `due_at` for both conditions."""
    outside = shell(queue)
    queue.clock = ManualClock(datetime.now(UTC) - timedelta(minutes=1))
    first, second = queue.enqueue("a"), queue.enqueue("b")
    queue.enqueue("c", delay_seconds=3600)

    rows = outside.choose(
        postgres="SELECT id FROM tasks WHERE due_at <= NOW() ORDER BY created_at ASC, seq LIMIT 10",
        sqlite="SELECT id FROM tasks WHERE due_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')"
        " ORDER BY created_at ASC, seq LIMIT 10",
    )

    assert [str(task_id) for (task_id,) in rows] == [str(first), str(second)]


def test_block_18_the_formula_of_the_retry_strategy() -> None:
    """4.2 Scheduler Module, retry strategy: `min(10 * 2^attempts, 21600)`, spread by 20 % to both sides."""
    config = Config("sqlite:///:memory:", base_retry_delay_seconds=10)

    assert [config.backoff.mean(attempts) for attempts in range(4)] == [10, 20, 40, 80]
    assert config.backoff.mean(50) == 21600
    spread = [Backoff(base=10, rng=lambda end=end: end)(0) for end in (0.0, 1.0)]
    assert spread == [8, 12]


def test_block_18_the_examples_of_the_retry_strategy() -> None:
    """4.2 Scheduler Module, retry strategy: the printed ranges grow by four, and so does a multiplier of four."""
    printed = [(8, 12), (32, 48), (2.1 * 60, 3.1 * 60), (8.5 * 60, 12.7 * 60), (34.1 * 60, 51.1 * 60)]

    for attempts, (least, most) in enumerate(printed):
        low, high = (Backoff(base=10, multiplier=4, rng=lambda end=end: end)(attempts) for end in (0.0, 1.0))
        assert (low, high) == (pytest.approx(least, rel=0.04), pytest.approx(most, rel=0.04))


def test_block_19_token_bucket() -> None:
    """4.2 Scheduler Module, rate limiting: at 10 a second ten start at once, then one every 100 ms."""
    now = 0.0
    bucket = TokenBucket(10, clock=lambda: now)

    assert bucket.available == 10
    bucket.take(10)
    assert (bucket.available, bucket.next_in) == (0, pytest.approx(0.1))
    now += 0.1001
    assert bucket.available == 1
    bucket.take(1)
    now += 60
    assert bucket.available == 10


CLAIM = """
UPDATE tasks
SET state = 'running',
    version = version + 1,
    started_at = {now},
    attempts = attempts + 1,
    updated_at = {now},
    next_retry_at = NULL,
    locked_until = {later}
WHERE id = '{id}'
  AND state IN ('pending', 'failed')
  AND version = {version}
"""
CLOCKS = {
    "postgres": {"now": "NOW()", "later": "NOW() + INTERVAL '5 minutes'"},
    "sqlite": {"now": "datetime('now')", "later": "datetime('now', '+5 minutes')"},
}


def test_block_20_only_one_claim_of_a_version_succeeds(queue: TaskQueue, shell: OpenShell) -> None:
    """4.3 Executor Module, optimistic locking: of two claims of the same version, one changes a row."""
    outside = shell(queue)
    task = read(queue, queue.enqueue("send_email"))
    claim = CLAIM.format(id=task.id, version=task.version, **CLOCKS[outside.dialect])

    changed = [outside.run(claim), outside.run(claim)]

    assert changed == [[(1,)], [(0,)]]
    claimed = read(queue, task.id)
    assert (claimed.state, claimed.version, claimed.attempts) == ("running", 1, 1)


def test_block_21_recovery_by_hand(queue: TaskQueue, shell: OpenShell) -> None:
    """4.3 Executor Module, stale task recovery: find what runs for too long, reset it, and it runs again."""
    outside = shell(queue)
    queue.clock = ManualClock(datetime.now(UTC) - timedelta(hours=1))
    task = read(queue, queue.enqueue("send_email"))
    before = {"now": "NOW() - INTERVAL '6 minutes'", "later": "NOW()"}
    if outside.dialect == "sqlite":
        before = {"now": "datetime('now', '-6 minutes')", "later": "datetime('now')"}
    outside.run(CLAIM.format(id=task.id, version=0, **before))

    limit = {"postgres": "NOW() - INTERVAL '5 minutes'", "sqlite": "datetime('now', '-5 minutes')"}[outside.dialect]
    stale = outside.run(f"SELECT id FROM tasks WHERE state = 'running' AND started_at < {limit} LIMIT 100")
    reset = outside.run(
        f"UPDATE tasks SET state = 'pending', next_retry_at = NULL, updated_at = {CLOCKS[outside.dialect]['now']}"
        f" WHERE id = '{task.id}' AND state = 'running' AND started_at < {limit}"
    )
    queue.register_handler("send_email", lambda payload: "sent")
    queue.process_batch()

    assert [str(task_id) for (task_id,) in stale] == [str(task.id)]
    assert reset == [(1,)]
    assert (read(queue, task.id).result, read(queue, task.id).attempts) == ({"value": "sent"}, 2)


def test_block_21_recovery_by_the_queue(queue: TaskQueue, shell: OpenShell) -> None:
    """4.3 Executor Module, stale task recovery: `recover_stale_tasks` does it, and counts the lost attempt."""
    outside = shell(queue)
    task_id = queue.enqueue("send_email")
    outside.run(CLAIM.format(id=task_id, version=0, **CLOCKS[outside.dialect]))
    advance(queue, minutes=6)

    assert queue.recover_stale_tasks() == 1

    task = read(queue, task_id)
    assert (task.state, task.attempts, task.retry_count) == ("pending", 1, 1)
    assert (task.error or "").startswith("WorkerLost")


def test_block_22_a_type_without_a_handler_is_left_alone(queue: TaskQueue) -> None:
    """4.3 Executor Module, execution flow, step 2: no handler, no claim; the task stays for a worker that has one."""
    task_id = queue.enqueue("nobody.knows")

    assert queue.process_batch() == 0

    assert (read(queue, task_id).state, read(queue, task_id).attempts) == ("pending", 0)


def test_block_22_the_last_attempt_is_terminal(queue: TaskQueue) -> None:
    """4.3 Executor Module, execution flow, step 3: an error sets next_retry_at, at the last attempt completed_at."""
    queue.register_handler("test", fail)
    task_id = queue.enqueue("test", max_attempts=2)

    queue.process_batch()
    first = read(queue, task_id)
    advance(queue, minutes=1)
    queue.process_batch()
    last = read(queue, task_id)

    assert (first.next_retry_at is not None, first.completed_at) == (True, None)
    assert (last.next_retry_at, last.completed_at is not None) == (None, True)


async def test_block_22_a_late_finish_is_refused(
    queue: TaskQueue, shell: OpenShell, caplog: pytest.LogCaptureFixture
) -> None:
    """4.3 Executor Module, execution flow, step 4: a task taken over meanwhile keeps what happened since."""
    outside = shell(queue)

    async def handler(task: Task) -> str:
        outside.run(f"UPDATE tasks SET version = version + 1 WHERE id = '{task.id}'")
        return "too late"

    queue.register_handler("test", handler)
    task_id = await queue.aenqueue("test")
    await queue.aprocess_batch()

    task = read(queue, task_id)
    assert (task.state, task.result) == ("running", None)
    assert "refused" in caplog.text


def test_block_23_worker_loop(queue: TaskQueue) -> None:
    """4.4 Worker Module, worker loop: recover, stop at a pause, then process what is due; limits come later."""
    queue.register_handler("test", lambda payload: None)
    for _ in range(3):
        queue.enqueue("test")

    assert queue.recover_stale_tasks() == 0
    queue.pause()
    assert queue.process_batch() == 0
    queue.resume()
    assert queue.process_batch() == 3


def test_block_24_pause_behavior(queue: TaskQueue) -> None:
    """4.4 Worker Module, pause behavior: nothing is executed, everything can be asked, resuming needs no restart."""
    queue.register_handler("test", lambda payload: "done")
    queue.pause(by="anna", reason="maintenance window")
    task_id = queue.enqueue("test")

    assert (queue.process_batch(), queue.is_paused(), queue.stats().pending) == (0, True, 1)
    assert [(pause.by, pause.reason) for pause in queue.pauses()] == [("anna", "maintenance window")]

    queue.resume()
    assert queue.process_batch() == 1
    assert read(queue, task_id).result == {"value": "done"}


async def test_block_25_parallelism(queue: TaskQueue) -> None:
    """4.4 Worker Module, parallelism: one at a time unless told otherwise, N at a time when told so."""
    running, most = 0, 0
    together = asyncio.Event()

    async def handler(payload: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == payload["until"]:
            together.set()
        await asyncio.wait_for(together.wait(), 20)
        running -= 1

    queue.register_handler("test", handler)
    for concurrency, number in ((1, 3), (3, 3)):
        together.clear()
        most = 0
        ids = [await queue.aenqueue("test", {"until": concurrency}) for _ in range(number)]
        worker = asyncio.ensure_future(queue.arun(concurrency=concurrency, signals=False))
        for task_id in ids:
            await queue.await_(task_id, timeout=20)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        assert most == concurrency


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
    assert {key: body["byType"]["send_email"][key] for key in ("pending", "completed")} == {
        "pending": 1,
        "completed": 1,
    }


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


async def test_block_37_from_start_to_stop(database_url: str) -> None:
    """5.2 Programmatic API: initialize, set up two types, add tasks with and without options, control, stop."""
    tq.init(database_url, poll_interval=1.0, batch_size=10)
    done: list[str] = []

    async def send_email(payload: dict[str, str]) -> None:
        done.append(payload["to"])

    async def process_image(payload: dict[str, str]) -> None:
        done.append(payload["imageUrl"])

    try:
        tq("send_email").set_worker(send_email).set_worker_count(2).set_rate_limit(10).set_timeout(30)
        tq("process_image").set_worker(process_image).set_worker_count(4).set_rate_limit(20).set_timeout(300)
        tq("send_email").add({"to": "user@example.com", "subject": "Welcome", "body": "Hello!"})
        tq("process_image").add({"imageUrl": "/uploads/photo.jpg"})
        tq("send_email").add(
            {"to": "vip@example.com", "subject": "Important"},
            max_attempts=10,
            run_after=datetime(2099, 12, 31, tzinfo=UTC),
        )
        await aeventually(lambda: tq.stats().completed == 2)

        tq.pause()
        tq.resume()
        (waiting,) = tq.queue.list(state="delayed")
        assert (waiting.max_attempts, waiting.payload["to"]) == (10, "vip@example.com")
        assert sorted(done) == ["/uploads/photo.jpg", "user@example.com"]
    finally:
        await tq.stop()


def test_block_44_the_options_of_init(database_url: str) -> None:
    """7.3 Global tq() Function: poll interval, batch size and task timeout, with the defaults printed there."""
    parameters = inspect.signature(tq.init).parameters

    defaults = {name: parameters[name].default for name in ("poll_interval", "batch_size", "task_timeout")}
    assert defaults == {"poll_interval": 1.0, "batch_size": 10, "task_timeout": 300}
    with pytest.raises(NotInitialized, match=r"tq\.init"):
        Fluent()("crawl")


def test_block_45_usage_example(fluent: Fluent) -> None:
    """7.3 Global tq() Function, usage example: set up and use, both chained."""
    tq("crawl", payload=CrawlPayload).set_worker(lambda payload: payload.url).set_worker_count(3).set_rate_limit(10)
    tq("crawl").add({"url": "https://example.com/1"}).add({"url": "https://example.com/2"})
    tq.pause()
    tq.resume()

    results = {task.result["value"] for task in wait_for(fluent.queue, 2) if task.result}
    assert results == {"https://example.com/1", "https://example.com/2"}


def test_block_46_task_manager(queue: TaskQueue) -> None:
    """7.3 TaskManager: create, get, list and delete are the queue's; the rest is a worker's and is not public."""
    queue.register_handler("send_email", lambda payload: None)

    task_id = queue.enqueue("send_email", {"to": "a@example.com"}, max_attempts=3)
    assert read(queue, task_id).id == task_id
    assert queue.get("not-an-id") is None
    assert [task.id for task in queue.list(name="send_email")] == [task_id]
    queue.process_batch()
    assert queue.delete(task_id) is True
    assert queue.get(task_id) is None


def test_block_47_scheduler(queue: TaskQueue) -> None:
    """7.3 Scheduler: the next retry, whether a task should run now, and what is ready."""
    assert Backoff(base=10, jitter=0)(2) == 40
    now, later = queue.enqueue("test"), queue.enqueue("test", delay_seconds=60)

    moment = queue.clock.now()
    assert moment is not None
    due = {task.id: task.due_at for task in queue.list()}
    assert due[now] is not None
    assert due[now] <= moment
    assert due[later] == moment + timedelta(seconds=60)
    assert [task.id for task in queue.list(state="delayed")] == [later]


def test_block_48_executor(queue: TaskQueue) -> None:
    """7.3 Executor: handlers come and go; a task of a type without one waits."""
    queue.register_handler("test", lambda payload: None)
    queue.enqueue("test")
    queue.unregister_handler("test")

    assert queue.process_batch() == 0
    queue.register_handler("test", lambda payload: None)
    assert queue.process_batch() == 1


async def test_block_49_worker(queue: TaskQueue) -> None:
    """7.3 Worker: start, be seen running, and stop after the current work."""
    started, proceed = threading.Event(), threading.Event()

    def slow(payload: Any) -> str:
        started.set()
        proceed.wait(20)
        return "finished"

    queue.register_handler("test", slow)
    task_id = await queue.aenqueue("test")

    worker = asyncio.ensure_future(queue.arun(signals=False))
    assert await asyncio.to_thread(started.wait, 20)
    assert [each.alive for each in await queue.aworkers()] == [True]
    worker.cancel()
    proceed.set()
    await asyncio.gather(worker, return_exceptions=True)

    assert read(queue, task_id).result == {"value": "finished"}
    assert await queue.aworkers() == []


def test_block_50_database_setup(database_url: str) -> None:
    """8.1 Database Setup: `migrate` creates the tables and indexes, and does nothing the second time."""
    with TaskQueue(Config(database_url, auto_migrate=False)) as queue:
        with pytest.raises(SchemaMissing, match="tasklib migrate"):
            queue.stats()
        applied = queue.migrate()
        assert [name[:4] for name in applied] == sorted({name[:4] for name in applied})
        assert applied[0] == "0001_initial"
        assert queue.migrate() == []
        assert queue.stats().total == 0


async def test_block_51_initialize_queue(queue: TaskQueue) -> None:
    """8.2 Initialize Queue: poll interval, batch size and the time after which a task is stale."""
    config = Config(url_of(queue), poll_interval_seconds=2.0, lock_timeout_seconds=300)
    async with TaskQueue(config) as other:
        other.register_handler("test", lambda payload: "done")
        worker = asyncio.ensure_future(other.arun(prefetch=5, signals=False))

        task_id = await other.aenqueue("test")
        finished = await other.await_(task_id, timeout=20)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)

    assert finished.result == {"value": "done"}


async def test_block_52_register_handlers(queue: TaskQueue) -> None:
    """8.3 Register Handlers: one returns an object, one what another function gave, one nothing."""
    indexed: list[str] = []

    async def send_email(payload: dict[str, str]) -> dict[str, str]:
        return {"messageId": f"{payload['to']}/{payload['subject']}"}

    async def process_image(payload: dict[str, str]) -> list[int]:
        return [len(payload["imageUrl"])]

    async def search_index(payload: dict[str, str]) -> None:
        indexed.append(payload["itemId"])

    for handler in (send_email, process_image, search_index):
        queue.register_handler(handler.__name__, handler)
    ids = [
        await queue.aenqueue("send_email", {"to": "a", "subject": "b", "body": "c"}),
        await queue.aenqueue("process_image", {"imageUrl": "/x.png"}),
        await queue.aenqueue("search_index", {"itemId": "i1"}),
    ]
    await queue.aprocess_batch()

    results = [read(queue, task_id).result for task_id in ids]
    assert results == [{"value": {"messageId": "a/b"}}, {"value": [6]}, {"value": None}]
    assert indexed == ["i1"]


def test_block_53_enqueue_tasks(queue: TaskQueue) -> None:
    """8.4 Enqueue Tasks: with a priority and a number of attempts; the API route comes with HTTP."""
    task_id = queue.enqueue(
        "send_email",
        {"to": "user@example.com", "subject": "Welcome", "body": "Hello!"},
        priority=3,
        max_attempts=5,
    )

    assert (read(queue, task_id).priority, read(queue, task_id).max_attempts) == (3, 5)


def test_block_55_retry_with_exponential_backoff(queue: TaskQueue) -> None:
    """10.1 Unit Tests, the example test: two failures, then success; the clock is moved past each backoff."""
    attempts = 0

    def handler(payload: Any) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise RuntimeError("Fail")

    queue.register_handler("test", handler)
    task_id = queue.enqueue("test", {}, max_attempts=3)

    queue.process_batch()  # attempt 1: fail
    assert read(queue, task_id).state == "failed"

    advance(queue, 6)
    queue.process_batch()  # attempt 2: fail
    assert read(queue, task_id).attempts == 2

    advance(queue, 12)
    queue.process_batch()  # attempt 3: success
    assert read(queue, task_id).state == "completed"
    assert attempts == 3


async def test_block_55_without_waiting_nothing_is_retried(queue: TaskQueue) -> None:
    """10.1 Unit Tests: a retry is due only after its delay, however often a batch is processed."""
    queue.register_handler("test", fail)
    task_id = await queue.aenqueue("test")

    await queue.aprocess_batch()
    await queue.aprocess_batch()

    assert (await aeventually(lambda: queue.get(task_id))).attempts == 1
