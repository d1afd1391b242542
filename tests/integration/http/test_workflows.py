"""Workflows over HTTP: steps and children, events, questions and answers."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import SecretStr

from tasklib import AsyncTaskContext
from tests.fixtures.queues import Face
from tests.integration.http.conftest import Client


@pytest.fixture
def waiting(queue: Face) -> Any:
    """A workflow that has a step, waits for an event, asks, and runs a child."""

    def double(n: int) -> int:
        return 2 * n

    @queue.task
    async def child(n: int) -> int:
        return n

    @queue.task
    async def workflow(ctx: AsyncTaskContext, n: int) -> list[Any]:
        found = [await ctx.step(double, n), await ctx.wait("number", int)]
        found.append(await ctx.wait("sure", bool, ask="Are you sure?"))
        found.append(await ctx.run(child.bind(7)))
        return found

    task_id = workflow.submit(4)
    queue.process_batch()
    return task_id


def test_a_workflow_is_told_asked_and_shown(queue: Face, http: Client, waiting: Any) -> None:
    shown = http.get(f"/api/tasks/{waiting}").json()
    assert (shown["status"], shown["waitsFor"]) == ("pending", "event number")
    assert http.get("/api/tasks?status=waiting").json()["total"] == 1
    assert http.get("/api/tasks/stats").json()["waiting"] == 1
    assert "waiting for event number" in http.get(f"/api/tasks/{waiting}/explain").json()["reasons"][0]["text"]

    assert http.post(f"/api/tasks/{waiting}/events", {"name": "number", "payload": 5}).json() == {"new": True}
    queue.process_batch()
    (question,) = http.get("/api/questions").json()["questions"]
    assert (question["taskId"], question["key"], question["question"]) == (str(waiting), "sure", "Are you sure?")
    assert question["answerSchema"] == {"type": "boolean"}
    assert http.post(f"/api/tasks/{waiting}/answers/sure", {"value": "maybe"}).status_code == 400
    assert http.post(f"/api/tasks/{waiting}/answers/sure", {"value": True}).status_code == 200
    while queue.process_batch():
        pass

    assert http.get(f"/api/tasks/{waiting}").json()["result"] == [8, 5, True, 7]
    steps = http.get(f"/api/tasks/{waiting}/steps").json()["steps"]
    assert [(step["key"], step["kind"], step["state"]) for step in steps] == [
        ("double", "step", "done"),
        ("number", "wait", "done"),
        ("sure", "ask", "done"),
        ("child", "run", "done"),
    ]
    assert [step["value"] for step in steps[:3]] == [8, 5, True]
    (group,) = http.get(f"/api/tasks/{waiting}/tree").json()["groups"]
    assert (group["total"], group["ended"], group["children"][0]["type"]) == (1, 1, "child")


def test_a_fact_is_told_once_and_withdrawn(queue: Face, http: Client) -> None:
    assert http.post("/api/events", {"name": "shipped:1", "payload": {"a": 1}}).json() == {"new": True}
    assert http.post("/api/events", {"name": "shipped:1"}).json() == {"new": False}
    assert http.delete("/api/events/shipped:1").json() == {"new": True}
    assert http.delete("/api/events/shipped:1").json() == {"new": False}


@pytest.mark.parametrize(
    "path, body, status",
    [
        ("/api/events", {}, 400),
        ("/api/events", {"name": "x" * 201}, 400),
        ("/api/tasks/00000000-0000-0000-0000-000000000000/events", {"name": "x"}, 404),
        ("/api/tasks/00000000-0000-0000-0000-000000000000/answers/x", {"value": 1}, 404),
        ("/api/tasks/nonsense/answers/x", {"value": 1}, 404),
    ],
)
def test_bad_input_is_refused(http: Client, path: str, body: Any, status: int) -> None:
    assert http.post(path, body).status_code == status


def test_what_is_not_there_is_404(http: Client) -> None:
    for what in ("steps", "tree"):
        assert http.get(f"/api/tasks/00000000-0000-0000-0000-000000000000/{what}").status_code == 404


def test_secrets_of_the_arguments_are_hidden_wherever_a_workflow_is_shown(queue: Face, http: Client) -> None:
    def repeat(text: str) -> str:
        return f"got {text}"

    @queue.task
    async def child(key: SecretStr) -> None: ...

    @queue.task
    async def telling(ctx: AsyncTaskContext, key: SecretStr) -> None:
        secret = key.get_secret_value()
        await ctx.options(key=secret).step(repeat, secret)
        await ctx.options(key=secret).run(child.bind(key))
        await asyncio.gather(ctx.wait(f"paid-{secret}"), ctx.wait("sure", ask=f"Use {secret}?"))

    task_id = telling.submit("very-secret")
    for _ in range(3):
        queue.process_batch()

    assert "Use **********?" in http.get("/api/questions").text
    faces = ["/api/questions", "/api/tasks", f"/api/tasks/{task_id}"]
    faces += [f"/api/tasks/{task_id}/{what}" for what in ("steps", "tree", "explain")]
    assert {face: "very-secret" in http.get(face).text for face in faces} == dict.fromkeys(faces, False)


@pytest.mark.parametrize("name", ["a/b", "\U0001f600", "with space"])
def test_a_fact_of_any_name_can_be_withdrawn(queue: Face, http: Client, name: str) -> None:
    http.post("/api/events", {"name": name})
    assert http.delete(f"/api/events/{quote(name, safe='')}").json() == {"new": True}


def test_names_that_no_database_keeps_are_refused(queue: Face, http: Client, waiting: Any) -> None:
    assert http.delete("/api/events/%00").status_code == 400
    assert http.delete("/api/events/" + "x" * 201).status_code == 400
    assert http.post(f"/api/tasks/{waiting}/answers/%00", {"value": 1}).status_code == 400
    assert http.get("/api/questions?wrong=1").status_code == 400


def test_an_answer_that_does_not_fit_is_named(queue: Face, http: Client, waiting: Any) -> None:
    queue.emit("number", 1)
    queue.process_batch()
    refused = http.post(f"/api/tasks/{waiting}/answers/sure", {"value": "maybe"}).json()
    assert refused["detail"].startswith("the value of the answer cannot be taken: the answer must be of type boolean")
    assert refused["field"] == "value"


def test_a_retry_resumes_or_begins_from_scratch(queue: Face, http: Client) -> None:
    ran: list[int] = []

    def note() -> int:
        ran.append(1)
        return 1

    def fails() -> None:
        raise ValueError("unlucky")

    @queue.task(max_retries=0)
    async def workflow(ctx: AsyncTaskContext) -> None:
        await ctx.step(note)
        await ctx.step(fails)

    task_id = workflow.submit()
    queue.process_batch()
    for query, count in (("", 1), ("?fromScratch=true", 2), ("?fromStep=note", 3)):
        assert http.post(f"/api/tasks/{task_id}/retry{query}").status_code == 200
        queue.process_batch()
        assert len(ran) == count
