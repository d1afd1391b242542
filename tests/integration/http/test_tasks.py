"""Seed 002 §5.1, route by route: paths, fields, statuses, codes."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tasklib.core.lifecycle import Phase
from tests.fixtures.queues import Face
from tests.integration.http.conftest import Client

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")

TASK_FIELDS = {
    *("id", "type", "payload", "status", "attempts", "maxAttempts", "lastAttemptAt", "nextRetryAt", "result", "error"),
    *("runAfter", "createdAt", "updatedAt", "completedAt"),
}
NOBODY = "550e8400-e29b-41d4-a716-446655440000"


def ids(response: Any) -> list[str]:
    return [task["id"] for task in response.json()["tasks"]]


def test_create_answers_what_was_stored(queue: Face, http: Client) -> None:
    response = http.post("/api/tasks", {"type": "send_email", "payload": {"to": "user@example.com"}})

    assert response.status_code == 201
    body = response.json()
    assert body == {
        "id": body["id"],
        "type": "send_email",
        "status": "pending",
        "createdAt": "2030-01-01T12:00:00Z",
    }
    assert response.headers["location"] == f"/api/tasks/{body['id']}"
    task = queue.read(body["id"])
    assert (task.payload, task.max_attempts) == ({"to": "user@example.com"}, 3)


def test_create_takes_every_option(queue: Face, http: Client) -> None:
    created = http.create(
        maxAttempts=5,
        runAfter="2030-01-02T10:00:00+02:00",
        priority=7,
        tags={"batch": "daily"},
        timeoutSeconds=30,
        uniqueKey="k",
        onConflict="raise",
        concurrencyKey="tenant-7",
        expiresAt="2030-01-03T00:00:00Z",
    )

    body = http.get(f"/api/tasks/{created['id']}").json()
    assert body["maxAttempts"] == 5
    assert body["runAfter"] == "2030-01-02T08:00:00Z"
    assert body["expiresAt"] == "2030-01-03T00:00:00Z"
    assert (body["priority"], body["tags"], body["timeoutSeconds"]) == (7, {"batch": "daily"}, 30)
    assert (body["uniqueKey"], body["concurrencyKey"]) == ("k", "tenant-7")


@pytest.mark.parametrize("payload", [{}, [1, 2], "text", 0, False, {"deep": {"er": [None]}}])
def test_a_payload_is_any_json(http: Client, payload: Any) -> None:
    response = http.post("/api/tasks", {"type": "job", "payload": payload})

    assert http.get(f"/api/tasks/{response.json()['id']}").json()["payload"] == payload


LEFT_OUT = (
    "maxAttempts",
    "priority",
    "tags",
    "timeoutSeconds",
    "concurrencyKey",
    "runAfter",
    "uniqueKey",
    "expiresAt",
    "repeat",
)


@pytest.mark.parametrize("options", [None, dict.fromkeys(LEFT_OUT)])
def test_null_is_an_option_that_is_left_out(http: Client, options: Any) -> None:
    created, plain = (http.post("/api/tasks", {"type": "job", **given}).json() for given in ({"options": options}, {}))

    assert {**created, "id": "", "createdAt": ""} == {**plain, "id": "", "createdAt": ""}


BAD_BODIES: list[tuple[Any, str | None]] = [
    ({"payload": {}}, "type"),
    ({"type": ""}, "type"),
    ({"type": 5}, "type"),
    ({"type": "a\u0000b"}, "type"),
    ({"type": "x" * 300}, "type"),
    ({"type": " padded "}, None),
    ({"type": "job", "colour": 1}, "colour"),
    ({"type": "job", "options": {"maxAttempts": 0}}, "options.maxAttempts"),
    ({"type": "job", "options": {"maxAttempts": "3"}}, "options.maxAttempts"),
    ({"type": "job", "options": {"maxAttempts": 2**40}}, "options.maxAttempts"),
    ({"type": "job", "options": {"runAfter": "tomorrow"}}, "options.runAfter"),
    ({"type": "job", "options": {"runAfter": "2030-01-01T00:00:00"}}, "options.runAfter"),
    ({"type": "job", "options": {"runAfter": 1736935200}}, "options.runAfter"),
    ({"type": "job", "options": {"runAfter": "0001-01-01T00:00:00+14:00"}}, "options.runAfter"),
    ({"type": "job", "options": {"timeoutSeconds": -1}}, "options.timeoutSeconds"),
    ({"type": "job", "options": {"uniqueKey": "\u0000"}}, "options.uniqueKey"),
    ({"type": "job", "options": {"onConflict": "explode"}}, "options.onConflict"),
    ({"type": "job", "options": {"tags": ["a"]}}, "options.tags"),
    ({"type": "job", "options": {"repeat": {"every": 5}, "uniqueKey": "k"}}, "options.uniqueKey"),
    ({"type": "job", "payload": {"text": "a\u0000b"}}, "payload"),
    ([], None),
    ("text", None),
]


@pytest.mark.backends("sqlite-file")  # refused before any statement
@pytest.mark.parametrize(
    "method, path, body, headers, said",
    [
        ("GET", "/api/tasks?tag=urgent", None, {}, "tag[0]: must be name=value, got urgent"),
        (
            "GET",
            "/api/tasks?cursor=zz",
            None,
            {},
            "cursor: is no cursor; send `nextCursor` of the previous page, got zz",
        ),
        ("POST", "/api/tasks", {"type": "a\nb"}, {}, "type: must not contain control characters, such as a line break"),
        (
            *("POST", "/api/tasks", {"type": "job"}, {"Idempotency-Key": "two words"}),
            "Idempotency-Key: must be visible ASCII characters without spaces",
        ),
    ],
)
def test_what_a_text_must_look_like_is_said_in_words(
    http: Client, method: str, path: str, body: Any, headers: dict[str, str], said: str
) -> None:
    assert http.request(method, path, json=body, headers=headers).json()["detail"] == said


@pytest.mark.parametrize("body, field", BAD_BODIES)
def test_a_bad_body_is_400_and_stores_nothing(queue: Face, http: Client, body: Any, field: str | None) -> None:
    response = http.post("/api/tasks", body)

    assert response.status_code == 400
    assert response.json().get("field") == field
    assert queue.count() == 0


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"\xff\xfe",
        b'{"type": "job", "payload": NaN}',
        b'{"type": "job", "payload": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"type": "job", "payload": ' + b"[" * 100 + b"]" * 100 + b"}",
        b'{"type": "job", "payload": ' + b"9" * 5000 + b"}",
        b'{"type": "job", "payload": "\\ud800"}',
        b'{"type": "\\ud800"}',
        b'{"type": "job", "options": {"tags": {"x": NaN}}}',
    ],
)
def test_what_is_no_storable_json_is_400(queue: Face, http: Client, content: bytes) -> None:
    response = http.request("POST", "/api/tasks", content=content, headers={"content-type": "application/json"})

    assert response.status_code == 400
    assert queue.count() == 0


def test_a_held_unique_key_answers_its_task_or_409(queue: Face, http: Client) -> None:
    first = http.create(uniqueKey="k")

    again = http.post("/api/tasks", {"type": "job", "options": {"uniqueKey": "k"}})
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    refused = http.post("/api/tasks", {"type": "job", "options": {"uniqueKey": "k", "onConflict": "raise"}})
    assert refused.status_code == 409
    assert queue.count() == 1


def test_a_task_has_the_fields_of_the_specification(queue: Face, http: Client) -> None:
    task = queue.task_in(Phase.COMPLETED, payload={"to": "a"})

    body = http.get(f"/api/tasks/{task.id}").json()
    assert set(body) >= TASK_FIELDS
    assert body["status"] == "completed"
    assert body["result"] == {"done": True}
    assert all(body[key].endswith("Z") for key in ("lastAttemptAt", "createdAt", "updatedAt", "completedAt"))
    assert (body["attempts"], body["maxAttempts"], body["error"], body["runAfter"]) == (1, 3, None, None)
    assert [attempt["outcome"] for attempt in body["history"]] == ["completed"]


@pytest.mark.parametrize("phase", list(Phase))
def test_statuses_are_those_of_http(queue: Face, http: Client, phase: Phase) -> None:
    task = queue.task_in(phase)

    status = http.get(f"/api/tasks/{task.id}").json()["status"]
    assert status == {"running": "processing", "retrying": "failed"}.get(phase.value, phase.value)


UNKNOWN = [NOBODY, "nonsense", "a%00b", "%F0%9F%98%80", "0" * 500]


@pytest.mark.parametrize("task_id", UNKNOWN)
@pytest.mark.parametrize(
    "method, action", [("GET", ""), ("DELETE", ""), ("POST", "/retry"), ("POST", "/cancel"), ("GET", "/explain")]
)
def test_an_unknown_or_malformed_id_is_404(http: Client, task_id: str, method: str, action: str) -> None:
    assert http.request(method, f"/api/tasks/{task_id}{action}").status_code == 404


def test_list_is_newest_first_with_total(http: Client) -> None:
    made = [http.create()["id"] for _ in range(5)]

    response = http.get("/api/tasks")
    assert response.status_code == 200
    assert {key: response.json()[key] for key in ("total", "limit", "offset")} == {"total": 5, "limit": 50, "offset": 0}
    assert ids(response) == made[::-1]
    page = http.get("/api/tasks", params={"limit": 2, "offset": 1})
    assert ids(page) == made[::-1][1:3]
    assert page.json()["total"] == 5


def test_list_filters_by_type_and_statuses(queue: Face, http: Client) -> None:
    done = str(queue.task_in(Phase.COMPLETED).id)
    failed = str(queue.task_in(Phase.FAILED).id)
    running = str(queue.task_in(Phase.RUNNING).id)
    other = http.create("other")["id"]
    delayed = http.create(runAfter="2031-01-01T00:00:00Z")["id"]

    assert ids(http.get("/api/tasks?type=other")) == [other]
    assert ids(http.get("/api/tasks?status=failed&status=completed")) == [failed, done]
    assert ids(http.get("/api/tasks?status=processing")) == [running]
    assert ids(http.get("/api/tasks?status=delayed")) == [delayed]
    assert ids(http.get("/api/tasks?status=pending")) == [delayed, other]


@pytest.mark.parametrize(
    "query",
    ["limit=101", "limit=0", "limit=x", "offset=-1", "status=running", "stauts=failed", "cursor=zz", "search=%00"],
)
def test_a_bad_query_is_400(http: Client, query: str) -> None:
    response = http.get(f"/api/tasks?{query}")

    assert response.status_code == 400
    assert response.json()["field"].startswith(query.partition("=")[0])


def test_pages_by_cursor_hold_still_while_tasks_come_and_go(queue: Face, http: Client) -> None:
    made = [str(queue.task_in(Phase.CANCELLED).id) for _ in range(5)]

    first = http.get("/api/tasks?limit=2").json()
    http.create()
    http.delete(f"/api/tasks/{first['tasks'][-1]['id']}")
    second = http.get("/api/tasks", params={"limit": 2, "cursor": first["nextCursor"], "total": "false"}).json()
    third = http.get("/api/tasks", params={"limit": 2, "cursor": second["nextCursor"]}).json()

    seen = [task["id"] for page in (first, second, third) for task in page["tasks"]]
    assert seen == made[::-1]
    assert second["total"] is None
    assert third["nextCursor"] is None


def test_search_looks_in_payload_tags_and_error(queue: Face, http: Client) -> None:
    payload = http.create(payload={"to": "Ada@example.com"})["id"]
    tagged = http.create(tags={"customer": "Lovelace"})["id"]

    assert ids(http.get("/api/tasks?search=ada@EXAMPLE")) == [payload]
    assert ids(http.get("/api/tasks?search=lovelace")) == [tagged]
    assert ids(http.get("/api/tasks?tag=customer=Lovelace")) == [tagged]


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.RETRYING, Phase.CANCELLED, Phase.BURIED])
def test_retry_starts_from_zero_attempts(queue: Face, http: Client, phase: Phase) -> None:
    task = queue.task_in(phase)

    response = http.post(f"/api/tasks/{task.id}/retry")
    assert response.status_code == 200
    assert response.json() == {"id": str(task.id), "status": "pending", "attempts": 0, "nextRetryAt": None}


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.RUNNING, Phase.COMPLETED])
def test_retry_of_anything_else_is_400(queue: Face, http: Client, phase: Phase) -> None:
    task = queue.task_in(phase)
    before = queue.bytes_of(task.id)

    assert http.post(f"/api/tasks/{task.id}/retry").status_code == 400
    assert queue.bytes_of(task.id) == before


def test_a_completed_task_is_retried_by_force(queue: Face, http: Client) -> None:
    task = queue.task_in(Phase.COMPLETED)

    assert http.post(f"/api/tasks/{task.id}/retry?force=true").json()["status"] == "pending"


@pytest.mark.parametrize("phase", [Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED, Phase.BURIED])
def test_a_finished_task_is_deleted(queue: Face, http: Client, phase: Phase) -> None:
    task = queue.task_in(phase)

    response = http.delete(f"/api/tasks/{task.id}")
    assert (response.status_code, response.content) == (204, b"")
    assert queue.get(task.id) is None


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.RUNNING, Phase.RETRYING])
def test_a_task_that_is_not_finished_is_not_deleted(queue: Face, http: Client, phase: Phase) -> None:
    task = queue.task_in(phase)

    assert http.delete(f"/api/tasks/{task.id}").status_code == 400
    assert queue.get(task.id) is not None


def test_a_priority_is_changed_until_the_task_has_ended(queue: Face, http: Client) -> None:
    done, waiting = queue.task_in(Phase.COMPLETED), http.create()["id"]

    answer = http.post(f"/api/tasks/{waiting}/priority", {"priority": 9})
    assert answer.json() == {"id": waiting, "status": "pending", "priority": 9}
    assert queue.get(waiting).priority == 9
    assert http.post(f"/api/tasks/{waiting}/priority", {"priority": "high"}).status_code == 400
    assert http.post(f"/api/tasks/{done.id}/priority", {"priority": 9}).status_code == 400
    assert http.post("/api/tasks/nonsense/priority", {"priority": 9}).status_code == 404


def test_cancel_ends_a_waiting_task_and_asks_a_running_one(queue: Face, http: Client) -> None:
    running = queue.task_in(Phase.RUNNING)
    waiting = http.create()["id"]

    assert http.post(f"/api/tasks/{waiting}/cancel").json()["status"] == "cancelled"
    asked = http.post(f"/api/tasks/{running.id}/cancel").json()
    assert (asked["status"], asked["cancelRequestedAt"]) == ("processing", "2030-01-01T12:00:00Z")
    assert http.post(f"/api/tasks/{waiting}/cancel").status_code == 400


def test_stats_count_by_status_and_type(queue: Face, http: Client) -> None:
    queue.task_in(Phase.COMPLETED)
    queue.task_in(Phase.CANCELLED)
    queue.task_in(Phase.RUNNING)
    http.create("other")

    body = http.get("/api/tasks/stats").json()
    expected = {"pending": 1, "processing": 1, "completed": 1, "failed": 0, "cancelled": 1, "buried": 0}
    assert {key: body[key] for key in expected} == expected
    of_type = {"pending": 0, "processing": 1, "completed": 1, "failed": 0, "cancelled": 1, "buried": 0}
    assert {key: body["byType"]["job"][key] for key in of_type} == of_type
    assert {key: count for key, count in body["byType"]["other"].items() if count} == {"pending": 1}


def test_clean_up_removes_old_completed_tasks_only(queue: Face, http: Client) -> None:
    queue.task_in(Phase.COMPLETED)
    failed = queue.task_in(Phase.FAILED)
    queue.advance(3600)
    young = queue.task_in(Phase.COMPLETED)

    when = "2030-01-01T12:30:00Z"
    assert http.delete("/api/tasks", params={"olderThan": when, "dryRun": "true"}).json() == {"deleted": 1}
    response = http.delete("/api/tasks", params={"olderThan": when})
    assert (response.status_code, response.json()) == (200, {"deleted": 1})
    assert {task.id for task in queue.list()} == {failed.id, young.id}
    more = http.delete(
        "/api/tasks", params={"olderThan": "2030-01-01T14:30:00+02:00", "status": ["failed", "completed"]}
    )
    assert more.json() == {"deleted": 1}


@pytest.mark.parametrize("query", ["", "olderThan=", "olderThan=yesterday", "olderThan=2030-01-01", "olderThan=5"])
def test_clean_up_needs_a_moment(http: Client, query: str) -> None:
    response = http.delete(f"/api/tasks?{query}")

    assert (response.status_code, response.json()["field"]) == (400, "olderThan")


def test_a_plus_in_a_query_is_understood(http: Client) -> None:
    assert http.delete("/api/tasks?olderThan=2030-01-01T12:00:00+02:00").status_code == 200


def test_explain_says_why(http: Client) -> None:
    created = http.create()

    reasons = http.get(f"/api/tasks/{created['id']}/explain").json()["reasons"]
    assert [reason["code"] for reason in reasons] == ["no_worker"]
    assert reasons[0]["remedy"]


def test_tasks_of_the_executors_specification(queue: Face, http: Client) -> None:
    assert http.post("/tasks", {"type": "job", "payload": {"n": 1}}).status_code == 201

    repeated = http.post("/tasks", {"type": "job", "payload": {"n": 2}, "options": {"repeat": {"every": 60}}})
    assert repeated.status_code == 201
    assert repeated.json()["nextRunAt"] == "2030-01-01T12:01:00Z"
    again = http.post("/tasks", {"type": "job", "payload": {"n": 2}, "options": {"repeat": {"every": 60}}})
    assert again.json()["schedule"] == repeated.json()["schedule"]
    cron = http.post(
        "/tasks", {"type": "job", "options": {"repeat": {"cron": "0 9 * * mon-fri", "tz": "Europe/Paris"}}}
    )
    assert cron.json()["nextRunAt"] == "2030-01-02T08:00:00Z"
    assert len(queue.schedules()) == 2


@pytest.mark.parametrize(
    "repeat", [{}, {"cron": "x"}, {"every": 0}, {"every": 5, "cron": "* * * * *"}, {"cron": "* * * * *", "tz": "Mars"}]
)
def test_a_repetition_that_cannot_be_is_400(http: Client, repeat: Any) -> None:
    assert http.post("/tasks", {"type": "job", "options": {"repeat": repeat}}).status_code == 400


def test_an_unknown_route_or_method_is_a_problem(http: Client) -> None:
    assert http.get("/api/nothing").json()["detail"] == "there is nothing at /api/nothing; see GET /openapi.json"
    refused = http.put("/api/tasks", {})
    assert (refused.status_code, refused.headers["allow"]) == (405, "DELETE, GET, POST")
    assert refused.json()["detail"] == "/api/tasks does not take PUT; see GET /openapi.json"
    assert http.get(f"/api/tasks/{uuid4()}/nothing").status_code == 404


@pytest.mark.parametrize(
    "body, detail",
    [
        ('{"type":', "the body is not JSON: Expecting value at character 8"),
        ("", "send a JSON object, with the header Content-Type: application/json"),
        ("[]", "send a JSON object, with the header Content-Type: application/json"),
        (b'{"type": "caf\xe9"}', "the body is not UTF-8 text; send it in UTF-8 and uncompressed"),
        ('{"type": "job", "option": {}}', "option: is not known here; see GET /openapi.json"),
        (
            '{"type": "job", "options": {"maxAttempts": 0}}',
            "options.maxAttempts: Input should be greater than or equal to 1, got 0",
        ),
    ],
)
def test_what_is_wrong_with_a_body_is_said_plainly(http: Client, body: str | bytes, detail: str) -> None:
    refused = http.request("POST", "/api/tasks", content=body, headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.json()["detail"]) == (400, detail)


def test_what_is_wrong_with_a_query_is_said_with_its_value(http: Client) -> None:
    assert http.get("/api/tasks?limit=101").json()["detail"].endswith("less than or equal to 100, got 101")


def test_a_refused_action_speaks_of_statuses(queue: Face, http: Client) -> None:
    task = queue.task_in(Phase.RUNNING)
    detail = http.delete(f"/api/tasks/{task.id}").json()["detail"]
    assert "it is processing; delete is possible when" in detail
