"""Every change is in the audit log, in the transaction of the change: both are stored or neither is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from tasklib import AsyncTaskContext
from tasklib.core.lifecycle import Phase
from tasklib.storage.operations import actions
from tasklib.storage.operations.access import tokens
from tasklib.storage.operations.access.tokens import Role
from tests.fixtures.queues import Face
from tests.integration.http.conftest import Client

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")

REPEAT = {"repeat": {"every": 60}}
CHANGES: list[tuple[str, str, Any, str]] = [
    ("POST", "/api/tasks", {"type": "new"}, "create_task"),
    ("POST", "/tasks", {"type": "new"}, "create_task"),
    ("POST", "/api/tasks", {"type": "new", "options": REPEAT}, "create_task"),
    ("POST", "/api/tasks/batch", {"tasks": [{"type": "new"}, {"type": "new"}]}, "create_many"),
    ("POST", "/api/tasks/bulk", {"action": "cancel", "filter": {"type": "job"}}, "act_on_matching"),
    ("POST", "/api/tasks/bulk", {"action": "retry", "filter": {"search": "shown"}}, "act_on_matching"),
    (
        *("POST", "/api/tasks/bulk"),
        {"action": "prioritize", "priority": 3, "filter": {"type": "job"}},
        "act_on_matching",
    ),
    ("POST", "/api/tasks/{pending}/priority", {"priority": 3}, "set_priority"),
    ("POST", "/api/tasks/{pending}/cancel", None, "cancel_task"),
    ("POST", "/api/tasks/{failed}/retry", None, "retry_task"),
    ("DELETE", "/api/tasks/{failed}", None, "delete_task"),
    ("POST", "/api/tasks/{failed}/resubmit", {"payload": {}}, "resubmit_task"),
    ("DELETE", "/api/tasks?olderThan=2031-01-01T00:00:00Z&status=failed", None, "clean_up"),
    ("POST", "/api/tasks/pause", {"type": "job"}, "pause"),
    ("POST", "/api/tasks/resume", None, "resume"),
    ("POST", "/api/tasks/rate-limit", {"tasksPerSecond": 5}, "set_rate_limit"),
    ("POST", "/api/tasks/concurrency-limit", {"maxRunning": 5}, "set_concurrency_limit"),
    ("POST", "/api/tasks/key-limit", {"maxRunning": 5}, "set_key_limit"),
    ("POST", "/api/schedules", {"name": "new", "type": "job", "every": 60}, "create_schedule"),
    ("PUT", "/api/schedules/nightly", {"type": "job", "every": 60}, "put_schedule"),
    ("POST", "/api/schedules/nightly/pause", None, "pause_schedule"),
    ("POST", "/api/schedules/nightly/resume", None, "resume_schedule"),
    ("POST", "/api/schedules/nightly/run", None, "run_schedule"),
    ("DELETE", "/api/schedules/nightly", None, "remove_schedule"),
    ("POST", "/api/errors/{group}/redrive", None, "redrive"),
    ("POST", "/api/tokens", {"name": "bob"}, "create_token"),
    ("DELETE", "/api/tokens/{token}", None, "revoke_token"),
    ("POST", "/api/events", {"name": "shipped", "payload": 42}, "emit"),
    ("DELETE", "/api/events/{fact}", None, "withdraw"),
    ("POST", "/api/tasks/{pending}/events", {"name": "note", "payload": "now"}, "emit_to"),
    ("POST", "/api/tasks/{asking}/answers/sure", {"value": True}, "answer"),
    ("POST", "/api/flows", {"name": "nightly", "nodes": [{"ref": "a", "type": "job"}]}, "create_flow"),
    ("POST", "/api/budgets/{budget}/spend", {"cost": 1}, "spend"),
    ("PUT", "/api/budgets/new", {"perMinute": 60}, "set_budget"),
    ("DELETE", "/api/budgets/{budget}", None, "remove_budget"),
    ("POST", "/api/objectives", {"type": "job", "withinSeconds": 5}, "set_objective"),
    ("POST", "/api/errors/{group}/status", {"status": "muted"}, "mark_error"),
]
STORED = (
    *("tasks", "tasklib_controls", "tasklib_key_limits", "tasklib_schedules", "tasklib_tokens"),
    *("tasklib_events", "tasklib_steps", "tasklib_budgets", "tasklib_objectives", "tasklib_error_marks"),
)


@pytest.fixture
def client(queue: Face) -> Iterator[Client]:
    """An administrator's."""
    made = queue.do(lambda: tokens.create_token("ada", Role.ADMIN))
    client = Client(queue, queue.plain.asgi(auth="tokens"), Authorization=f"Bearer {made.secret}")
    yield client
    client.close()


class Changes:
    """Every kind of change, each about something that is as the change needs it."""

    def __init__(self, queue: Face, client: Client) -> None:
        self._queue = queue
        self._client = client
        self._numbers = count()
        queue.enqueue("job", {})

    def __iter__(self) -> Iterator[tuple[str, str, Any, str]]:
        for method, path, body, action in CHANGES:
            self._queue.add_schedule("nightly", task="job", cron="0 3 * * *")
            yield method, path.format_map(self), body, action

    def __getitem__(self, what: str) -> Any:
        """What is in the place of a name in a path."""
        match what:
            case "pending" | "failed":
                name = f"{what}-{next(self._numbers)}"  # a claim must find this one
                return self._queue.task_in(Phase(what), name, payload={"note": "shown"}).id
            case "fact":
                name = f"fact-{next(self._numbers)}"
                self._queue.emit(name)
                return name
            case "asking":
                return self._asking()
            case "budget":
                self._queue.set_budget("tokens", per_minute=60)
                return "tokens"
            case "token":
                made = self._queue.do(lambda: tokens.create_token("bob", Role.VIEWER))
                return made.token.id
            case _:
                assert self["failed"]
                return self._client.get("/api/errors").json()["groups"][0]["id"]

    def _asking(self) -> Any:
        async def ask(ctx: AsyncTaskContext) -> bool:
            return await ctx.wait("sure", bool, ask="Are you sure?")

        task_id = self._queue.task(name=f"ask-{next(self._numbers)}")(ask).submit()
        self._queue.process_batch()
        return task_id


def stored(queue: Face) -> dict[str, list[str]]:
    """Everything a change could have changed."""
    return {table: sorted(map(str, queue.sql(f"SELECT * FROM {table}"))) for table in STORED}


def test_a_change_is_written_down_once(queue: Face, client: Client) -> None:
    for number, (method, path, body, action) in enumerate(Changes(queue, client)):
        response = client.request(method, path, json=body, headers={"X-Request-ID": f"r-{number}"})
        assert response.status_code < 300, action
        listed = client.get("/api/audit?limit=500").json()["entries"]
        entries = [each for each in listed if each["role"] != "local"]

        assert len(entries) == number + 1, action
        said = {name: entries[0][name] for name in ("actor", "role", "action", "requestId", "remote")}
        assert list(said.values()) == ["ada", "admin", action, f"r-{number}", "127.0.0.1"]
        assert entries[0]["at"].startswith("2030-01-01")
        assert response.headers["x-request-id"] == f"r-{number}"


def test_a_change_that_cannot_be_written_down_does_not_happen(queue: Face, client: Client) -> None:
    for method, path, body, action in Changes(queue, client):
        client.get("/api/tasks")  # the token's use is noted
        before = stored(queue)
        queue.sql("ALTER TABLE tasklib_audit RENAME TO tasklib_audit_away")
        assert client.request(method, path, json=body).status_code >= 500, action
        assert stored(queue) == before, action
        queue.sql("ALTER TABLE tasklib_audit_away RENAME TO tasklib_audit")


def test_every_route_that_changes_something_is_among_these(client: Client) -> None:
    described = client.app.openapi()["paths"]
    named = {
        (method.upper(), operation["operationId"].split("_api_")[0])
        for path, operations in described.items()
        for method, operation in operations.items()
        if method not in ("get", "head") and operation.get("x-permission") != "work" and path != "/api/session"
    }
    listed = {(method, action) for method, _, _, action in CHANGES}
    assert {action for _, action in named} - {action for _, action in listed} - {"create_task_plain"} == set()


def test_work_in_several_transactions_is_written_down_in_the_first_and_in_the_last_and_listed_once(
    queue: Face, http: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "STEP", 2)
    for _ in range(5):
        http.create("many")
    seen = len(http.get("/api/audit").json()["entries"])
    asked = {"action": "cancel", "filter": {"type": "many"}}
    assert http.post("/api/tasks/bulk", asked).json()["changed"] == 5
    (listed,) = http.get("/api/audit").json()["entries"][:-seen]
    assert listed["detail"] == {**asked, "changed": 5}

    queue.sql(f"DELETE FROM tasklib_audit WHERE seq = {listed['seq']}")  # as if it had been killed on its way
    (first,) = http.get("/api/audit").json()["entries"][:-seen]
    assert first["detail"] == {**asked, "begun": True}


def test_a_request_sent_again_under_its_key_is_no_second_change(http: Client) -> None:
    for _ in range(3):
        assert http.post("/api/tasks", {"type": "job"}, headers={"Idempotency-Key": "k"}).status_code == 201
    assert [entry["action"] for entry in http.get("/api/audit").json()["entries"]] == ["create_task"]


def test_what_was_wrong_or_only_read_is_not_a_change(http: Client) -> None:
    http.get("/api/tasks")
    http.post("/api/tasks", {"type": ""})
    http.post("/api/tasks/nobody/retry")

    assert http.get("/api/audit").json()["entries"] == []


def entries_of(client: Client) -> list[dict[str, Any]]:
    """The log, the oldest entry first."""
    found: list[dict[str, Any]] = client.get("/api/audit?limit=500").json()["entries"]
    return found[::-1]


def test_who_was_refused_is_in_the_log(queue: Face, client: Client) -> None:
    made = queue.do(lambda: tokens.create_token("eve", Role.VIEWER))
    eve = {"Authorization": f"Bearer {made.secret}"}
    task = queue.enqueue("job")

    assert client.post(f"/api/tasks/{str(task).upper()}/cancel", headers=eve).status_code == 403
    assert client.get("/api/audit", headers=eve).status_code == 403
    assert client.post("/api/tasks/pause", headers={"Authorization": "Bearer tl_guessed"}).status_code == 401
    assert client.post("/api/tasks/pause", headers={"Origin": "http://evil.example"}).status_code == 403
    form = {"content": "token=tl_guessed", "headers": {"Accept": "text/html", "Authorization": ""}}
    assert client._queue.run_coroutine(client._client.post("/sign-in", **form)).status_code == 401
    said = [(each["actor"], each["role"], each["action"], each["target"]) for each in entries_of(client)]
    assert said == [
        ("eve", "viewer", "cancel_task", str(task)),
        ("eve", "viewer", "read_audit", None),
        ("anonymous", "none", "pause", None),
        ("anonymous", "none", "request", None),
        ("anonymous", "none", "sign_in_by_form", None),
    ]
    assert [each["detail"]["status"] for each in entries_of(client)] == [403, 403, 401, 403, 401]
    assert "tl_guessed" not in client.get("/api/audit").text


@pytest.mark.parametrize("name", [None, "around"])
def test_refused_requests_to_a_mounted_service_are_in_the_log(queue: Face, client: Client, name: str | None) -> None:
    around = Starlette(routes=[Mount("/a/b", app=queue.plain.asgi(auth="tokens"), name=name)])
    mounted = Client(queue, around, Origin="http://evil.example")
    assert mounted.post("/a/b/api/tasks/pause").status_code == 403
    mounted.close()
    (entry,) = entries_of(client)
    assert (entry["action"], entry["detail"]["refused"]) == ("request", "origin-refused")


def test_refusals_cannot_fill_the_log(queue: Face, client: Client) -> None:
    for number in range(120):
        client.post("/api/tasks/pause", headers={"Authorization": f"Bearer {number}"})
    assert [each["detail"].get("times") for each in entries_of(client)] == [None, 10, 100]
    for number in range(100):
        client.post(f"/api/tasks/{number}/cancel", headers={"Authorization": "Bearer x"})
    assert len(entries_of(client)) == 60
    made = queue.do(lambda: tokens.create_token("eve", Role.VIEWER))
    assert client.post("/api/tasks/%00/cancel", headers={"Authorization": f"Bearer {made.secret}"}).status_code == 403
    assert entries_of(client)[-1]["actor"] == "eve"


def test_a_log_that_cannot_be_written_refuses_no_less(queue: Face, client: Client) -> None:
    queue.sql("ALTER TABLE tasklib_audit RENAME TO tasklib_audit_away")
    assert client.post("/api/tasks/pause", headers={"Authorization": "Bearer x"}).status_code == 401
    queue.sql("ALTER TABLE tasklib_audit_away RENAME TO tasklib_audit")


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "k"}], ids=["plain", "once"])
def test_the_log_names_the_task_that_was_changed(queue: Face, client: Client, headers: dict[str, str]) -> None:
    body = {"type": "job", "options": {"uniqueKey": "u"}}
    first = str(queue.enqueue("job", {}, unique_key="u"))
    seen = []
    for on_conflict in ("return", "replace"):
        sent = {"type": "job", "options": {"uniqueKey": "u", "onConflict": on_conflict}}
        sent_headers = {name: f"{value}-{on_conflict}" for name, value in headers.items()}
        assert client.post("/api/tasks", sent, headers=sent_headers).json()["id"] == first
        seen.append([each["detail"] for each in entries_of(client)])
    replaced = {"replaced": [first]} if headers else {"id": first, "replaced": True}
    assert seen == [[], [replaced]]
    made = client.post("/api/tasks/batch", {"tasks": [body, {"type": "new"}]}).json()["tasks"]
    assert entries_of(client)[-1]["detail"] == {"ids": [made[1]["id"]]}


def test_what_workers_did_is_in_the_log(queue: Face, client: Client) -> None:
    made = queue.do(lambda: tokens.create_token("js", Role.WORKER))
    worker = {"Authorization": f"Bearer {made.secret}"}
    for _ in range(5):
        queue.enqueue("job")
    instance = client.post("/api/workers", {"workerId": "w", "types": ["job"]}, headers=worker).json()["instance"]
    claimed = client.post(f"/api/workers/{instance}/claim", {"limit": 5}, headers=worker).json()["tasks"]
    queue.cancel(claimed[-1]["id"])
    client.post(f"/api/workers/{instance}/heartbeat", headers=worker)
    endings: list[tuple[str, dict[str, Any]]] = [
        ("complete", {"result": 1}), ("fail", {"error": "E: no"}), ("release", {}), ("snooze", {"delaySeconds": 9}),
        ("stopped", {}),
    ]  # fmt: skip
    for task, (how, said) in zip(claimed, endings, strict=True):
        sent = {"version": task["version"], **said}
        assert client.post(f"/api/tasks/{task['id']}/{how}", sent, headers=worker).status_code == 200
        assert client.post(f"/api/tasks/{task['id']}/{how}", sent, headers=worker).status_code != 403
    client.delete(f"/api/workers/{instance}", headers=worker)

    found = entries_of(client)
    assert {each["actor"] for each in found} == {"js"}
    expected = [(how, task["id"]) for task, (how, _) in zip(claimed, endings, strict=True)]
    assert [(each["action"], each["target"]) for each in found] == [
        ("register_worker", None), *expected, ("stop_worker", instance)
    ]  # fmt: skip


def test_the_audit_log_is_read_in_pages(http: Client) -> None:
    made = [http.create()["id"] for _ in range(5)]

    first = http.get("/api/audit?limit=2").json()["entries"]
    second = http.get(f"/api/audit?limit=2&before={first[-1]['seq']}").json()["entries"]
    assert [entry["detail"]["id"] for entry in first + second] == made[:0:-1]
