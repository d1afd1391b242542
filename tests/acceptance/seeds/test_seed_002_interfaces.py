"""Seed 002, section 2: handlers, the fluent interface and the list of routes, in Python's spelling."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tasklib import (
    InvalidArguments,
    Task,
    TaskQueue,
    TaskState,
    tq,
)
from tasklib.fluent import Fluent
from tests.acceptance.seeds.support import fail, read
from tests.fixtures.waiting import aeventually, eventually


@pytest.mark.parametrize("payload", [{"a": 1}, [1, 2], "text", 7, None, True], ids=repr)
def test_block_01_a_handler_takes_json_and_returns_json(payload: Any, queue: TaskQueue) -> None:
    """2.1 Task Handler Interface, contract: any JSON in, any JSON out."""
    queue.register_handler("echo", lambda payload: {"got": payload})

    task_id = queue.enqueue("echo", payload)
    queue.process_batch()

    assert read(queue, task_id).result == {"value": {"got": payload}}


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
