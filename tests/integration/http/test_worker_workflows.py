"""Workflows of workers in any language: steps, waits and children over HTTP, fenced by the claim."""

from __future__ import annotations

from typing import Any

import pytest

from tasklib.http.schemas import workers as schemas
from tasklib.storage.operations.access.tokens import Role, create_token
from tasklib.storage.operations.workflows.steps import wake_tasks
from tests.fixtures.queues import Face
from tests.integration.http.conftest import Client

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


class Remote:
    """A worker in another language, which holds one task at a time."""

    def __init__(self, http: Client, *types: str) -> None:
        self.http = http
        body = {"workerId": "w", "types": types or ["job"], "concurrency": 10}
        self.instance = http.post("/api/workers", body).json()["instance"]
        self.task: dict[str, Any] = {}

    def claim(self) -> dict[str, Any] | None:
        found = self.http.post(f"/api/workers/{self.instance}/claim", {"limit": 1}).json()["tasks"]
        self.task = found[0] if found else {}
        return self.task or None

    def send(self, what: str, **body: Any) -> Any:
        return self.http.post(f"/api/tasks/{self.task['id']}/{what}", {"version": self.task["version"], **body})

    def steps(self) -> dict[str, tuple[str, Any]]:
        return {step["key"]: (step["state"], step["value"]) for step in self.task["steps"] or []}


@pytest.fixture
def remote(http: Client) -> Remote:
    http.create()
    worker = Remote(http)
    worker.claim()
    return worker


def test_steps_are_recorded_once_and_come_with_the_next_claim(queue: Face, remote: Remote) -> None:
    assert (remote.task["steps"], remote.task["stepsUrl"]) == ([], None)
    first = remote.send("steps", key="charge", digest="abc", value={"id": 7}, seconds=0.5)
    assert first.status_code == 200
    again = remote.send("steps", key="charge", digest="other", value={"id": 8}).json()
    assert (again["value"], again["digest"], again["state"]) == ({"id": 7}, "abc", "done")
    assert remote.send("steps", key="text", value="[1]").json()["value"] == "[1]"
    assert remote.send("fail", error="network").json()["status"] == "failed"
    queue.advance(60)

    assert remote.claim()
    assert remote.steps() == {"charge": ("done", {"id": 7}), "text": ("done", "[1]")}
    shown = remote.http.get(f"/api/tasks/{remote.task['id']}/steps").json()["steps"]
    assert [(step["key"], step["kind"]) for step in shown] == [("charge", "step"), ("text", "step")]


def test_a_recorded_step_starts_the_retries_anew(queue: Face, remote: Remote) -> None:
    for number in range(5):
        remote.send("steps", key=f"step-{number}", value=number)
        assert remote.send("fail", error="again").json()["status"] == "failed"
        queue.advance(3600)
        assert remote.claim()


def test_a_failed_step_stays_unless_the_attempt_ended_in_it(queue: Face, remote: Remote) -> None:
    error = {"type": "Declined", "message": "no funds"}
    assert remote.send("steps", key="charge", error=error).json()["error"] == error
    remote.send("steps", key="other", error=error)
    remote.send("fail", error="Declined: no funds", step="charge")
    queue.advance(60)
    assert remote.claim()
    assert {key: state for key, (state, _) in remote.steps().items()} == {"charge": "open", "other": "failed"}
    assert remote.send("steps", key="charge", value="paid").json()["state"] == "done"


def test_a_lost_claim_records_nothing(queue: Face, remote: Remote) -> None:
    old = dict(remote.task)
    remote.send("release")
    assert remote.claim()
    remote.task, new = old, remote.task
    for what, body in (
        ("steps", {"key": "a", "value": 1}),
        ("suspend", {"key": "b", "events": ["x"]}),
        ("children", {"key": "c", "type": "t", "payloads": [{}]}),
    ):
        refused = remote.send(what, **body)
        assert (refused.status_code, refused.json()["type"].split(":")[-1]) == (409, "claim-lost")
    assert remote.http.get(f"/api/tasks/{new['id']}/steps").json()["steps"] == []


def test_a_wait_gives_the_event_or_ends_the_attempt(queue: Face, remote: Remote) -> None:
    waits = remote.send("suspend", key="shipped", events=["shipped:1", "lost:1"], until="2030-01-02T12:00:00Z")
    assert (waits.status_code, waits.json()) == (202, {"suspended": True})
    assert remote.send("suspend", key="shipped", events=["shipped:1", "lost:1"]).status_code == 202  # a lost reply
    shown = remote.http.get(f"/api/tasks/{remote.task['id']}").json()
    assert (shown["status"], shown["waitsFor"], shown["attempts"]) == ("pending", "event shipped:1 | lost:1", 0)
    assert remote.claim() is None
    remote.http.post("/api/events", {"name": "lost:1", "payload": {"at": "sea"}})

    assert remote.claim()
    assert remote.steps() == {"shipped": ("done", {"at": "sea"})}
    there = remote.send("suspend", key="shipped", events=["shipped:1", "lost:1"])
    assert (there.status_code, there.json()["value"]) == (200, {"at": "sea"})
    at_once = remote.send("suspend", key="again", events=["lost:1"])
    assert (at_once.status_code, at_once.json()["value"]) == (200, {"at": "sea"})


def test_an_open_wait_waits_for_what_its_worker_asks_for_now(queue: Face, remote: Remote) -> None:
    remote.send("suspend", key="gate", events=["a", "c"])
    remote.send("suspend", key="gate", events=["a", "c"])
    queue.do(lambda: wake_tasks([remote.task["id"]]))
    assert remote.claim()
    assert remote.send("suspend", key="gate", events=["b", "c"]).status_code == 202
    remote.http.post("/api/events", {"name": "a", "payload": 1})
    assert remote.claim() is None
    remote.http.post("/api/events", {"name": "b", "payload": 2})

    assert remote.claim()
    assert remote.steps() == {"gate": ("done", 2)}


def test_a_wait_that_gives_up_says_so(queue: Face, remote: Remote) -> None:
    remote.send("suspend", key="never", events=["never"], until="2030-01-01T12:05:00Z")
    queue.advance(301)
    assert remote.claim()
    over = remote.send("suspend", key="never", events=["never"])
    assert (over.status_code, over.json()["state"], over.json()["error"]["type"]) == (200, "failed", "WaitTimeout")


def test_a_sleep_holds_nothing_and_ends(queue: Face, remote: Remote) -> None:
    asleep = {"key": "nap", "until": "2030-01-01T13:00:00Z"}
    assert remote.send("suspend", **asleep).status_code == 202
    assert remote.http.get(f"/api/tasks/{remote.task['id']}").json()["waitsFor"] == "sleep"
    queue.advance(3000)
    assert remote.claim() is None
    queue.advance(601)
    assert remote.claim()
    assert remote.steps() == {"nap": ("done", None)}
    assert remote.send("suspend", **asleep).json()["state"] == "done"


def test_a_question_is_answered_by_a_person(queue: Face, remote: Remote) -> None:
    asks = {"key": "approval", "ask": "Run it?", "answerSchema": {"type": "boolean"}}
    assert remote.send("suspend", **asks).status_code == 202
    (question,) = remote.http.get("/api/questions").json()["questions"]
    assert (question["question"], question["answerSchema"]) == ("Run it?", {"type": "boolean"})
    assert remote.http.post(f"/api/tasks/{remote.task['id']}/answers/approval", {"value": 1}).status_code == 400
    assert remote.http.post(f"/api/tasks/{remote.task['id']}/answers/approval", {"value": True}).status_code == 200
    assert remote.claim()
    assert remote.steps() == {"approval": ("done", True)}


def test_children_are_fanned_out_in_chunks_and_in(queue: Face, remote: Remote) -> None:
    made = {"key": "all", "type": "part"}
    first = remote.send("children", **made, payloads=[{"n": 0}, {"n": 1}], sealed=False).json()
    assert (first["total"], first["sealed"], first["state"]) == (2, False, "open")
    assert remote.send("suspend", key="all", group=True).status_code == 400  # more may come
    for _ in range(2):  # the reply to the first is lost
        last = remote.send("children", **made, payloads=[{"n": 2}], before=2)
        assert (last.status_code, last.json()["total"], last.json()["sealed"]) == (200, 3, True)
    assert remote.send("suspend", key="all", group=True).status_code == 202
    parent = remote.task["id"]
    parts = Remote(remote.http, "part")
    for _ in range(3):
        assert parts.claim()
        if parts.task["payload"]["n"] == 1:
            parts.send("fail", error="broken", retry=False)
        else:
            parts.send("complete", result=parts.task["payload"]["n"] * 10)
    queue.process_batch()  # a worker adds up what has ended

    assert remote.claim()
    assert remote.task["id"] == parent
    joined = remote.send("suspend", key="all", group=True).json()
    assert {name: joined["value"][name] for name in ("total", "failed", "cancelled")} == {
        "total": 3,
        "failed": 1,
        "cancelled": 0,
    }
    answer = remote.http.get(f"/api/tasks/{parent}/children/all?version={remote.task['version']}")
    assert answer.status_code == 200, answer.text
    page = answer.json()
    assert [(each["status"], each["result"]) for each in page["children"]] == [
        ("completed", 0),
        ("failed", None),
        ("completed", 20),
    ]
    assert remote.http.get(page["next"]).json() == {"children": [], "next": None}
    (group,) = remote.http.get(f"/api/tasks/{parent}/tree").json()["groups"]
    assert (group["total"], group["ended"], group["failed"]) == (3, 3, 1)


def test_children_that_have_all_ended_are_in_when_their_parent_says_that_no_more_come(
    queue: Face, remote: Remote
) -> None:
    made = {"key": "all", "type": "part"}
    remote.send("children", **made, payloads=[{"n": 0}], sealed=False)
    parts = Remote(remote.http, "part")
    parts.claim()
    parts.send("complete", result=1)
    queue.process_batch()  # a worker adds up what has ended
    assert remote.send("children", **made, payloads=[], before=1).json()["sealed"] is True

    joined = remote.send("suspend", key="all", group=True)
    assert (joined.status_code, joined.json()["value"]["total"]) == (200, 1)


def test_too_many_failures_fail_the_wait(queue: Face, remote: Remote) -> None:
    remote.send("children", key="all", type="part", payloads=[{}, {}], maxFailures=0)
    remote.send("suspend", key="all", group=True)
    parts = Remote(remote.http, "part")
    parts.claim()
    parts.send("fail", error="broken", retry=False)
    queue.process_batch()
    assert remote.claim()
    over = remote.send("suspend", key="all", group=True).json()
    assert (over["state"], over["error"]["message"]) == ("failed", "1 of 2 children failed")


def test_children_that_do_not_follow_are_refused(remote: Remote) -> None:
    made = {"key": "all", "type": "part", "sealed": False}
    remote.send("children", **made, payloads=[{}])
    refused = remote.send("children", **made, payloads=[{}], before=5)
    assert (refused.status_code, "before=1" in refused.json()["detail"]) == (400, True)


def test_children_are_sent_again_from_the_first_by_a_worker_that_starts_over(remote: Remote) -> None:
    made = {"key": "all", "type": "part", "sealed": False}
    chunks = [[{"n": 0}, {"n": 1}], [{"n": 2}, {"n": 3}]]
    for _ in range(2):
        for before, payloads in zip((0, 2), chunks, strict=True):
            sent = remote.send("children", **made, payloads=payloads, before=before)
            assert sent.status_code == 200, sent.text
    assert sent.json()["total"] == 4
    others = remote.send("children", **made, payloads=[{"n": 3}, {"n": 2}], before=2)
    assert (others.status_code, "others than these" in others.json()["detail"]) == (400, True)
    fewer = remote.send("children", **{**made, "sealed": True}, payloads=chunks[0])
    assert (fewer.status_code, "others than these" in fewer.json()["detail"]) == (400, True)


def test_another_kind_of_step_under_the_key_is_refused_and_can_be_parked(queue: Face, remote: Remote) -> None:
    remote.send("steps", key="a", value=1)
    refused = remote.send("suspend", key="a", events=["x"])
    assert (refused.status_code, refused.json()["type"].split(":")[-1]) == (409, "step-mismatch")
    assert remote.send("suspend", key="a", mismatch="a was a step, and is a wait now").status_code == 202
    parked = remote.task["id"]
    explained = remote.http.get(f"/api/tasks/{parked}/explain").json()["reasons"][0]
    assert (explained["code"], "a was a step" in explained["text"]) == ("parked", True)
    (finding,) = [each for each in remote.http.get("/api/findings").json()["findings"] if each["code"] == "parked"]
    assert (finding["type"], finding["count"], finding["actions"][0]["target"]) == ("job", 1, parked)
    assert remote.claim() is None
    assert remote.http.post(f"/api/tasks/{parked}/retry").status_code == 200
    assert remote.claim()


def test_more_steps_than_fit_come_by_a_link(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "MOST_BYTES", 2000)
    for number in range(5):
        remote.send("steps", key=f"s{number}", value="x" * 500)
    remote.send("release")
    assert remote.claim()
    assert remote.task["steps"] is None
    keys, url = [], remote.task["stepsUrl"]
    while url:
        page = remote.http.get(url).json()
        keys += [step["key"] for step in page["steps"]]
        url = page["next"]
    assert keys == [f"s{number}" for number in range(5)]


def test_a_step_that_is_too_large_is_refused(queue: Face, remote: Remote) -> None:
    queue.plain.config = queue.plain.config.with_(max_result_bytes=100)
    refused = remote.send("steps", key="large", value="x" * 200)
    assert (refused.status_code, refused.json()["field"]) == (400, "value")


@pytest.mark.parametrize(
    "what, body",
    [
        ("steps", {"key": ""}),
        ("steps", {"key": "x" * 201}),
        ("steps", {"key": "x", "value": 1, "error": {"type": "E", "message": "m"}}),
        ("suspend", {"key": "x"}),
        ("suspend", {"key": "x", "events": ["a"], "ask": "b"}),
        ("suspend", {"key": "x", "group": True, "until": "2030-01-02T00:00:00Z"}),
        ("suspend", {"key": "none", "group": True}),
        ("children", {"key": "x", "type": "t"}),
    ],
)
def test_bad_input_is_refused(remote: Remote, what: str, body: Any) -> None:
    assert remote.send(what, **body).status_code == 400
    assert remote.http.get(f"/api/tasks/{remote.task['id']}/steps").json()["steps"] == []


def test_a_worker_acts_only_for_tasks_that_it_holds(queue: Face) -> None:
    clients = [
        Client(
            queue,
            queue.plain.asgi(auth="tokens"),
            Authorization=f"Bearer {queue.do(lambda name=name, role=role: create_token(name, role)).secret}",
        )
        for name, role in (("ada", Role.WORKER), ("eve", Role.WORKER), ("olga", Role.OPERATOR))
    ]
    ada, eve, olga = clients
    queue.set_budget("tokens", per_minute=60)
    held = olga.create()["id"]
    worker = Remote(ada)
    worker.claim()
    assert worker.send("steps", key="mine", value=1).status_code == 200
    version = worker.task["version"]
    for path, body in (
        (f"/api/tasks/{held}/steps", {"version": version, "key": "x", "value": 1}),
        (f"/api/tasks/{held}/suspend", {"version": version, "key": "x", "events": ["x"]}),
        (f"/api/tasks/{held}/children", {"version": version, "key": "x", "type": "t", "payloads": [{}]}),
        (f"/api/tasks/{held}/events", {"name": "x"}),
        ("/api/budgets/tokens/spend", {"cost": 1, "taskId": held, "version": version}),
    ):
        assert eve.post(path, body).status_code == 403, path
    assert eve.get(f"/api/tasks/{held}/steps/recorded?version={version}").status_code == 403
    assert ada.post(f"/api/tasks/{held}/events", {"name": "x"}).status_code == 201
    assert ada.post("/api/events", {"name": "x"}).status_code == 403
    assert ada.post("/api/budgets/tokens/spend", {"cost": 1}).status_code == 403
    assert olga.post("/api/budgets/tokens/spend", {"cost": 1}).status_code == 200
    worker.send("release")
    assert ada.post(f"/api/tasks/{held}/events", {"name": "y"}).status_code == 409
    for client in clients:
        client.close()


def test_tokens_are_spent_once_for_a_step(queue: Face, remote: Remote) -> None:
    queue.set_budget("llm", per_minute=60, burst=100)
    spending = {"cost": 80, "taskId": remote.task["id"], "version": remote.task["version"], "key": "ask"}
    for _ in range(2):
        assert remote.http.post("/api/budgets/llm/spend", spending).json()["spent"] is True
    short = remote.http.post("/api/budgets/llm/spend", {**spending, "key": "more"})
    assert (short.status_code, short.json()["spent"], round(short.json()["short"])) == (202, False, 60)
    assert int(short.headers["retry-after"]) == 61
    assert remote.http.post("/api/budgets/none/spend", {**spending, "key": "none"}).status_code == 400
    remote.send("release")
    remote.claim()
    assert {key: state for key, (state, _) in remote.steps().items()} == {"ask": "done", "more": "open"}


def test_secrets_of_the_task_are_not_shown_in_its_steps(queue: Face, http: Client) -> None:
    http.create(payload={"password": "hunter2"})
    worker = Remote(http)
    worker.claim()
    worker.send("steps", key="login", value={"said": "hunter2 is right"})
    worker.send("steps", key="again", error={"type": "Denied", "message": "hunter2 is wrong"})
    worker.send("suspend", key="sure", ask="Use hunter2?")
    for path in ("steps", "timeline", "tree", "explain"):
        assert "hunter2" not in http.get(f"/api/tasks/{worker.task['id']}/{path}").text, path
    assert "hunter2" not in http.get("/api/questions").text
    worker.http.post(f"/api/tasks/{worker.task['id']}/answers/sure", {"value": None})
    worker.claim()
    assert worker.steps()["login"] == ("done", {"said": "hunter2 is right"})  # its worker needs it
