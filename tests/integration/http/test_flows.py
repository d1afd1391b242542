"""Flows, timelines and budgets over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tasklib import TaskContext
from tests.fixtures.queues import Face
from tests.integration.http.conftest import Client

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")

FLOW: dict[str, Any] = {
    "name": "nightly",
    "nodes": [
        {"ref": "report", "type": "total", "payload": {"label": "sum"}, "results": {"a": "one", "b": "two"}},
        {"ref": "one", "type": "number", "payload": {"n": 1}, "options": {"priority": 5, "tags": {"day": "1"}}},
        {"ref": "two", "type": "number", "payload": {"n": 2}},
        {"ref": "alert", "type": "tell", "after": ["report"], "runIf": "failure"},
        {"ref": "done", "type": "tell", "after": ["report", "alert"], "runIf": "end"},
    ],
}


def test_a_flow_runs_in_its_order_with_results_as_arguments(queue: Face, http: Client) -> None:
    @queue.task(name="number")
    def number(n: int) -> int:
        return n * 10

    @queue.task(name="total")
    def total(a: int, b: int, label: str) -> str:
        return f"{label} {a + b}"

    queue.task(name="tell")(lambda: None)
    made = http.post("/api/flows", FLOW)
    assert made.status_code == 201
    ids = {each["ref"]: each["id"] for each in made.json()["tasks"]}
    assert [each["type"] for each in made.json()["tasks"]] == ["total", "number", "number", "tell", "tell"]
    waits = http.get(f"/api/tasks/{ids['report']}").json()
    assert (waits["status"], waits["waitsFor"], waits["tags"]) == (
        "pending",
        "prerequisites number",
        {"flow": "nightly"},
    )
    assert http.get(f"/api/tasks/{ids['one']}").json()["tags"] == {"flow": "nightly", "day": "1"}
    while queue.process_batch():
        pass

    ended = {ref: http.get(f"/api/tasks/{id}").json() for ref, id in ids.items()}
    assert ended["report"]["result"] == "sum 30"
    assert {ref: task["status"] for ref, task in ended.items()} == {
        "report": "completed",
        "one": "completed",
        "two": "completed",
        "alert": "cancelled",
        "done": "completed",
    }


def test_types_that_nobody_defines_here_make_a_flow(http: Client) -> None:
    nodes = [{"ref": "a", "type": "js.a"}, {"ref": "b", "type": "js.b", "results": {"given": "a"}}]
    made = http.post("/api/flows", {"name": "any", "nodes": nodes}).json()["tasks"]
    instance = http.post("/api/workers", {"workerId": "w", "types": ["js.a"]}).json()["instance"]
    (task,) = http.post(f"/api/workers/{instance}/claim", {}).json()["tasks"]
    assert task["id"] == made[0]["id"]


@pytest.mark.parametrize(
    "nodes, words",
    [
        ([{"ref": "a", "type": "t", "after": ["a"]}], "a after a"),
        (
            [
                {"ref": "a", "type": "t", "after": ["c"]},
                {"ref": "b", "type": "t", "after": ["a"]},
                {"ref": "c", "type": "t", "results": {"x": "b"}},
                {"ref": "d", "type": "t", "after": ["a"]},
            ],
            "a after c after b after a",
        ),
        ([{"ref": "a", "type": "t", "after": ["nobody"]}], "no node of that name"),
        ([{"ref": "a", "type": "t"}, {"ref": "a", "type": "t"}], "two nodes have the ref 'a'"),
        ([{"ref": "a", "type": "t"}, {"ref": "b", "type": "t", "payload": [], "results": {"x": "a"}}], "object"),
        (
            [{"ref": "a", "type": "t"}, {"ref": "b", "type": "t", "payload": {"x": 1}, "results": {"x": "a"}}],
            "in its payload and in its results",
        ),
        ([{"ref": "a", "type": "t", "runIf": "sometimes"}], "runIf"),
        ([{"ref": "a", "type": "t", "runIf": "failure"}], "nothing is before it"),
        ([], "nodes"),
    ],
)
def test_a_flow_that_cannot_be_is_refused_by_name(http: Client, nodes: Any, words: str) -> None:
    refused = http.post("/api/flows", {"name": "f", "nodes": nodes})
    assert (refused.status_code, words in refused.json()["detail"]) == (400, True), refused.text
    assert http.get("/api/tasks").json()["total"] == 0


def test_a_flow_that_is_sent_again_under_its_key_is_one(http: Client) -> None:
    key = {"Idempotency-Key": "k1"}
    first = http.post("/api/flows", FLOW, headers=key)
    again = http.post("/api/flows", FLOW, headers=key)
    assert (again.status_code, again.json(), again.headers["idempotent-replayed"]) == (201, first.json(), "true")
    assert http.get("/api/tasks").json()["total"] == 5
    assert http.post("/api/flows", {**FLOW, "name": "other"}, headers=key).status_code == 409


def test_a_timeline_has_attempts_steps_waits_and_notes_in_order(queue: Face, http: Client) -> None:
    def fetch() -> int:
        return 1

    @queue.task
    def give_back() -> None: ...

    @queue.task(max_retries=3)
    def workflow(ctx: TaskContext) -> None:
        ctx.options(undo=give_back.bind()).step(fetch)
        if ctx.attempt == 1 and not ctx.task.history:
            raise ValueError("once")
        ctx.wait("number", int, timeout_seconds=60)

    task_id = workflow.submit()
    queue.process_batch()
    queue.advance(60)
    queue.process_batch()
    queue.advance(1)
    http.post("/api/events", {"name": "number", "payload": 5})
    queue.process_batch()
    entries = http.get(f"/api/tasks/{task_id}/timeline").json()["entries"]
    assert [(each["kind"], each["key"], each["state"]) for each in entries] == [
        ("submitted", None, "pending"),
        ("attempt", None, "failed"),
        ("step", "fetch", "done"),
        ("wait", "number", "done"),
        ("attempt", None, "completed"),
        ("ended", None, "completed"),
    ]
    assert all(each["at"] for each in entries)
    assert [each["undo"] for each in entries] == [None, None, "give_back", None, None, None]
    assert [step["undo"] for step in http.get(f"/api/tasks/{task_id}/steps").json()["steps"]] == ["give_back", None]
    (wait,) = [each for each in entries if each["kind"] == "wait"]
    assert (wait["note"], wait["until"] > wait["at"]) == ("number", True)
    assert http.get("/api/tasks/00000000-0000-0000-0000-000000000000/timeline").status_code == 404


def test_a_budget_is_spent_by_anybody_who_operates(queue: Face, http: Client) -> None:
    queue.set_budget("calls", per_minute=60, burst=10)
    assert http.post("/api/budgets/calls/spend", {"cost": 8}).json() == {"spent": True, "short": 0.0, "seconds": 0.0}
    short = http.post("/api/budgets/calls/spend", {"cost": 4})
    assert (short.status_code, short.json()["spent"], round(short.json()["short"])) == (202, False, 2)
    queue.advance(3)
    assert http.post("/api/budgets/calls/spend", {"cost": 4}).status_code == 200
    for cost, words in ((11, "at most 10 tokens"), (-1, "cost")):
        refused = http.post("/api/budgets/calls/spend", {"cost": cost})
        assert (refused.status_code, words in refused.json()["detail"]) == (400, True)
    assert "no budget" in http.post("/api/budgets/none/spend", {"cost": 1}).json()["detail"]


def test_a_budget_whose_name_has_slashes_is_found_by_it(queue: Face, http: Client) -> None:
    queue.set_budget("llm/tokens", per_minute=60, burst=10)
    path = "/api/budgets/llm%2Ftokens"

    assert http.post(f"{path}/spend", {"cost": 8}).json()["spent"]
    assert http.put(path, {"perSecond": 5}).json()["name"] == "llm/tokens"
    assert http.delete(path).status_code == 204
    assert queue.budgets() == []
