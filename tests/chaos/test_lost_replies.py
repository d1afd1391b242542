"""PostgreSQL has committed, and the connection breaks before it can say so: the repeat finds its own work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import httpx
import pytest

from tasklib import Config, Task, TaskContext, TaskQueue
from tests.chaos.proxy import Proxy
from tests.chaos.test_half_open import through

COMMIT = b"COMMIT"
ENDING = b"started_ago"
"""What the statements that record an ending are sent, and nothing else."""
ROUNDS = [pytest.param(1, id="short"), pytest.param(20, id="long", marks=pytest.mark.chaos)]


@dataclass
class Net:
    """A queue by way of a proxy that can lose replies, and beside it one that loses nothing."""

    proxy: Proxy
    queue: TaskQueue
    sure: TaskQueue

    def losing(self, call: Callable[[], Any], words: bytes = COMMIT) -> Any:
        """The answer of a call although the reply to its COMMIT was lost."""
        self.proxy.lose_reply_to(words)
        answer = call()
        assert self.proxy.has_lost_it
        return answer

    def http(self, method: str, path: str, body: Any = None, words: bytes = COMMIT) -> httpx.Response:
        """What the service answers to one request, although the reply to its COMMIT was lost."""

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.queue.asgi(auth=None))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.request(method, path, json=body)

        response: httpx.Response = self.losing(lambda: asyncio.run(send()), words)
        return response

    def read(self, task_id: UUID | str) -> Task:
        task = self.sure.get(task_id)
        assert task is not None
        return task

    def actions(self) -> list[str]:
        """What the audit log says was done."""

        async def read() -> list[str]:
            transport = httpx.ASGITransport(self.sure.asgi(auth=None))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return [entry["action"] for entry in (await client.get("/api/audit")).json()["entries"]]

        return asyncio.run(read())


@pytest.fixture
def net(newest_postgres_url: str) -> Iterator[Net]:
    with (
        Proxy(urlsplit(newest_postgres_url).port or 0) as proxy,
        TaskQueue(Config(database_url=through(proxy, newest_postgres_url))) as queue,
        TaskQueue(newest_postgres_url) as sure,
    ):
        queue.count()
        yield Net(proxy, queue, sure)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_one_call_makes_one_task(net: Net, rounds: int) -> None:
    net.sure.add_schedule("nightly", task="report", every=86400)
    made: list[UUID] = []
    for _ in range(rounds):
        made.append(net.losing(lambda: net.queue.run_schedule("nightly")))
        ran = net.http("POST", "/api/schedules/nightly/run")
        again = net.http("POST", f"/api/tasks/{ran.json()['id']}/resubmit", {"payload": {"n": 1}})
        made += [UUID(response.json()["id"]) for response in (ran, again)]
        assert (ran.status_code, again.status_code) == (201, 201)

    assert sorted(task.id for task in net.sure.list(limit=1000)) == sorted(made)
    assert sorted(net.actions()) == ["resubmit_task"] * rounds + ["run_schedule"] * rounds


def test_an_action_that_was_done_is_answered_as_done(net: Net) -> None:
    waiting, over_http = net.sure.enqueue("job"), net.sure.enqueue("job")

    assert net.losing(lambda: net.queue.cancel(waiting)).state == "cancelled"
    assert net.losing(lambda: net.queue.retry(waiting)).state == "pending"
    net.sure.cancel(waiting)
    assert net.losing(lambda: net.queue.delete(waiting)) is True
    assert net.sure.get(waiting) is None

    assert net.http("POST", f"/api/tasks/{over_http}/cancel").json()["status"] == "cancelled"
    assert net.http("POST", f"/api/tasks/{over_http}/retry").json()["status"] == "pending"
    net.sure.cancel(over_http)
    assert net.http("DELETE", f"/api/tasks/{over_http}").status_code == 204
    assert sorted(net.actions()) == ["cancel_task", "delete_task", "retry_task"]

    net.sure.add_schedule("nightly", task="report", every=60)
    assert net.losing(lambda: net.queue.remove_schedule("nightly")) is True


def test_a_task_created_over_http_is_one_task_and_one_entry(net: Net) -> None:
    made = net.http("POST", "/api/tasks", {"type": "job", "payload": {"word": "rhubarb"}}, b"rhubarb")

    assert (made.status_code, [str(task.id) for task in net.sure.list()]) == (201, [made.json()["id"]])
    assert net.actions() == ["create_task"]


def test_an_event_told_once_is_one_event(net: Net) -> None:
    target = net.sure.enqueue("job")

    assert net.losing(lambda: net.queue.emit("shipped:1", {"by": "rhubarb"}), b"rhubarb") is True
    assert net.losing(lambda: net.queue.emit("note", {"by": "sorrel"}, to=target), b"sorrel") is True
    assert net.http("POST", "/api/events", {"name": "shipped:2", "payload": 1}).json()["new"] is True
    assert net.http("POST", f"/api/tasks/{target}/events", {"name": "note", "payload": 2}).status_code < 300
    assert net.losing(lambda: net.queue.emit("shipped:1", withdraw=True)) is True
    assert net.sure.emit("shipped:2") is False
    assert sorted(net.actions()) == ["emit", "emit_to"]

    @net.sure.task
    def job(ctx: TaskContext) -> list[Any]:
        return [ctx.wait("note", timeout_seconds=0.01) for _ in range(2)] + [ctx.wait("shipped:2")]

    net.sure.process_batch()
    assert net.read(target).result == {"value": [{"by": "sorrel"}, 2, 1]}


def test_an_answer_given_once_is_not_refused(net: Net) -> None:
    @net.sure.task
    def refund(ctx: TaskContext) -> bool:
        return ctx.wait("approval", bool, ask="Refund?")

    by_python, over_http = refund.submit(), refund.submit()
    net.sure.process_batch()

    net.losing(lambda: net.queue.answer(by_python, "approval", True, by="ada"))
    assert net.http("POST", f"/api/tasks/{over_http}/answers/approval", {"value": False}).status_code < 300
    net.sure.process_batch()
    assert [net.read(task_id).result for task_id in (by_python, over_http)] == [{"value": True}, {"value": False}]


def test_an_http_worker_is_told_that_its_ending_was_accepted(net: Net) -> None:
    ids = [net.sure.enqueue("job") for _ in range(2)]
    worker = net.http("POST", "/api/workers", {"workerId": "w", "types": ["job"]}).json()["instance"]
    transport = httpx.ASGITransport(net.sure.asgi(auth=None))

    async def claim() -> list[dict[str, Any]]:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            claimed = await client.post(f"/api/workers/{worker}/claim", json={"limit": 2})
            tasks: list[dict[str, Any]] = claimed.json()["tasks"]
            return tasks

    done, failed = asyncio.run(claim())
    answer = net.http("POST", f"/api/tasks/{done['id']}/complete", {"version": done["version"], "result": 7})
    assert (answer.status_code, answer.json()["status"]) == (200, "completed")
    answer = net.http("POST", f"/api/tasks/{failed['id']}/fail", {"version": failed["version"], "error": "E: e"})
    assert (answer.status_code, answer.json()["status"]) == (200, "failed")
    assert [net.read(task_id).attempts for task_id in ids] == [1, 1]


def test_an_accepted_finish_is_not_called_a_late_write(net: Net, caplog: pytest.LogCaptureFixture) -> None:
    @net.queue.task(max_retries=0)
    async def works() -> int:
        return 7

    @net.queue.task(max_retries=0)
    async def fails() -> None:
        raise ValueError("no")

    async def run(task_id: UUID) -> None:
        worker = asyncio.ensure_future(net.queue.arun(concurrency=1, signals=False))
        await net.queue.await_(task_id, timeout=180)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)

    for task in (works, fails):
        task_id = task.submit()
        with caplog.at_level(logging.WARNING, logger="tasklib"):
            net.losing(lambda task_id=task_id: asyncio.run(run(task_id)), ENDING)

    states = [task.state.value for task in net.sure.list()]
    assert (states, [r.message for r in caplog.records if "refused" in r.message]) == (["failed", "completed"], [])
