"""Sentry: errors without inputs, queue spans in one trace, and check-ins of schedules."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.transport import Transport

from tasklib import Retry, TaskQueue
from tasklib.contrib.sentry import TasklibIntegration
from tests.fixtures import python

PRIVATE = "".join(["nobody's", " ", "business"])
"""Spelled so that no line of this file contains it: Sentry quotes lines of code."""


class Captured(Transport):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def capture_envelope(self, envelope: Any) -> None:
        for item in envelope.items:
            self.events.append((item.type, item.payload.json))

    def of(self, kind: str) -> list[Any]:
        return [body for each, body in self.events if each == kind]

    def spans(self, op: str) -> list[Any]:
        return [span for each in self.of("transaction") for span in each["spans"] if span["op"] == op]


@pytest.fixture
def captured() -> Iterator[Captured]:
    transport = Captured()
    sentry_sdk.init(
        dsn="https://key@sentry.invalid/1",
        transport=transport,
        traces_sample_rate=1.0,
        default_integrations=False,
        integrations=[TasklibIntegration()],
    )
    yield transport
    # Without its own integrations, which change other libraries for all that this process does after.
    sentry_sdk.init(default_integrations=False)


@pytest.fixture
def queue(captured: Captured) -> Iterator[TaskQueue]:
    with TaskQueue("sqlite:///:memory:") as queue:
        yield queue


def test_publish_and_process_are_spans_of_one_trace(queue: TaskQueue, captured: Captured) -> None:
    queue.register_handler("work", lambda payload: payload)
    with sentry_sdk.start_transaction(op="http.server", name="request"):
        task_id = queue.enqueue("work", {"text": PRIVATE})
    queue.process_batch()

    (publish,), (process,) = captured.spans("queue.publish"), captured.spans("queue.process")
    assert publish["trace_id"] == process["trace_id"]
    assert publish["data"]["messaging.message.id"] == process["data"]["messaging.message.id"] == str(task_id)
    assert process["data"]["messaging.destination.name"] == "work"
    size = len('{"text":""}') + len(PRIVATE)
    assert publish["data"]["messaging.message.body.size"] == process["data"]["messaging.message.body.size"] == size
    assert process["data"]["messaging.message.retry.count"] == 0
    assert process["data"]["messaging.message.receive.latency"] >= 0
    assert PRIVATE not in repr(captured.events)


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_error_is_captured_without_the_tasks_arguments(queue: TaskQueue, captured: Captured, kind: str) -> None:
    def fail(text: str) -> None:
        raise ValueError("broken")

    if kind == "def":

        @queue.task(name="work", max_retries=0)
        def work(text: str) -> None:
            fail(text)

    else:

        @queue.task(name="work", max_retries=0)
        async def work_async(text: str) -> None:
            fail(text)

    queue.enqueue("work", {"text": PRIVATE})
    queue.process_batch()

    (event,) = captured.of("event")
    assert event["exception"]["values"][0]["value"] == "broken"
    assert event["exception"]["values"][0]["mechanism"]["type"] == "tasklib"
    assert event["tags"]["tasklib.task"] == "work"
    assert PRIVATE not in repr(captured.events)


def test_a_retry_that_the_task_asks_for_is_no_error(queue: TaskQueue, captured: Captured) -> None:
    def work(payload: Any) -> None:
        raise Retry(delay=60)

    queue.register_handler("work", work)
    queue.enqueue("work")
    queue.process_batch()

    assert captured.of("event") == []
    assert [each["contexts"]["trace"]["status"] for each in captured.of("transaction")] == ["ok"]


def test_runs_of_a_schedule_are_check_ins(queue: TaskQueue, captured: Captured) -> None:
    @queue.schedule(cron="0 3 * * *", tz="Europe/Paris", name="nightly")
    @queue.task(max_retries=0)
    def report() -> None: ...

    queue.add_schedule("nightly", task="report", cron="0 3 * * *", tz="Europe/Paris")
    queue.run_schedule("nightly")
    queue.process_batch()

    begun, ended = captured.of("check_in")
    assert (begun["monitor_slug"], begun["status"], ended["status"]) == ("nightly", "in_progress", "ok")
    assert begun["check_in_id"] == ended["check_in_id"]
    assert begun["monitor_config"] == {
        "schedule": {"type": "crontab", "value": "0 3 * * *"},
        "timezone": "Europe/Paris",
    }


def test_an_agent_is_answered_where_sentry_has_read_its_request(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SERVICE)
    answered = python.run([sys.executable, str(program)], capture_output=True, text=True, check=True, timeout=180)
    assert answered.stdout.split() == ["200", "queue_stats"]


# In a process of its own, because the integration changes FastAPI for good.
SERVICE = """
import asyncio
import httpx
import sentry_sdk
from sentry_sdk.integrations.fastapi import FastApiIntegration
from tasklib import TaskQueue

sentry_sdk.init(dsn="https://key@sentry.invalid/1", default_integrations=False, integrations=[FastApiIntegration()])
asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
takes = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}

async def main():
    transport = httpx.ASGITransport(TaskQueue("sqlite:///:memory:").asgi(auth=None))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.post("/mcp", json=asked, headers=takes)
        print(answer.status_code, answer.json()["result"]["tools"][0]["name"])

asyncio.run(main())
"""
