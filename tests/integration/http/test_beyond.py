"""What the service does beyond the specification: many at once, keys, conditional reads, control, schedules, health."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest

from tasklib.core.insights.histogram import bucket_of
from tasklib.core.lifecycle import ACTIONS, TERMINAL, Action, Phase
from tasklib.storage.operations import statistics
from tests.fixtures.queues import Face, open_queue
from tests.integration.http.conftest import Client

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


def test_a_batch_is_stored_in_its_order(queue: Face, http: Client) -> None:
    bodies = [{"type": "job", "payload": {"n": n}} for n in range(1000)]

    response = http.post("/api/tasks/batch", {"tasks": bodies})
    assert response.status_code == 201
    made = response.json()["tasks"]
    assert len(made) == 1000
    assert [queue.read(made[n]["id"]).payload for n in (0, 500, 999)] == [{"n": 0}, {"n": 500}, {"n": 999}]


@pytest.mark.parametrize(
    "bodies, field",
    [
        ([], "tasks"),
        ([{"type": "job"}] * 1001, "tasks"),
        ([{"type": "job"}, {"type": ""}], "tasks[1].type"),
        ([{"type": "job", "options": {"repeat": {"every": 5}}}], "tasks[0].options.repeat"),
    ],
)
def test_a_bad_batch_stores_nothing(queue: Face, http: Client, bodies: Any, field: str) -> None:
    response = http.post("/api/tasks/batch", {"tasks": bodies})

    assert (response.status_code, response.json()["field"]) == (400, field)
    assert queue.count() == 0


def test_an_idempotency_key_makes_one_task(queue: Face, http: Client) -> None:
    body = {"type": "job", "payload": {"n": 1}}
    key = {"Idempotency-Key": "order-7"}

    first = http.post("/api/tasks", body, headers=key)
    again = http.post("/api/tasks", body, headers=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert again.headers["idempotent-replayed"] == "true"
    assert queue.count() == 1
    assert http.post("/api/tasks", {"type": "other"}, headers=key).status_code == 409
    assert http.post("/api/tasks", body, headers={"Idempotency-Key": "x" * 300}).status_code == 400


def test_an_idempotency_key_is_forgotten_after_a_day(queue: Face, http: Client) -> None:
    key = {"Idempotency-Key": "order-7"}
    http.post("/api/tasks", {"type": "job"}, headers=key)
    queue.advance(24 * 3600 + 1)

    http.post("/api/tasks", {"type": "job"}, headers=key)
    assert queue.count() == 2


def test_a_failed_request_does_not_use_up_its_key(queue: Face, http: Client) -> None:
    key = {"Idempotency-Key": "order-7"}
    body = {"type": "job", "options": {"uniqueKey": "k", "onConflict": "raise"}}
    holder = http.create(uniqueKey="k")
    assert http.post("/api/tasks", body, headers=key).status_code == 409
    http.post(f"/api/tasks/{holder['id']}/cancel")

    assert http.post("/api/tasks", body, headers=key).status_code == 201


def test_a_batch_under_a_key_is_stored_once(queue: Face, http: Client) -> None:
    body = {"tasks": [{"type": "job"}, {"type": "job"}]}
    answers = [http.post("/api/tasks/batch", body, headers={"Idempotency-Key": "b"}).json() for _ in range(2)]

    assert answers[0] == answers[1]
    assert queue.count() == 2


@pytest.mark.parametrize("path", ["/api/tasks", "/api/tasks/stats"])
def test_what_did_not_change_is_not_sent_again(http: Client, path: str) -> None:
    tag = http.get(path).headers["etag"]

    unchanged = http.get(path, headers={"If-None-Match": f'"x", {tag}'})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    http.create()
    assert http.get(path, headers={"If-None-Match": tag}).status_code == 200


def test_bulk_acts_on_what_matches_after_a_dry_run(queue: Face, http: Client) -> None:
    for _ in range(3):
        queue.task_in(Phase.FAILED)
    http.create("other")
    body = {"action": "retry", "filter": {"type": "job", "status": ["failed"]}}

    assert http.post("/api/tasks/bulk", body | {"dryRun": True}).json() == {
        "action": "retry",
        "changed": 3,
        "dryRun": True,
    }
    assert queue.count(state="failed") == 3
    assert http.post("/api/tasks/bulk", body).json()["changed"] == 3
    assert queue.count(state="pending") == 4


def test_bulk_by_ids_and_tags(queue: Face, http: Client) -> None:
    one = http.create(tags={"batch": 1})["id"]
    two = http.create(tags={"batch": 2})["id"]

    cancel = {"action": "cancel"}
    assert http.post("/api/tasks/bulk", cancel | {"filter": {"tags": {"batch": 1}}}).json()["changed"] == 1
    assert http.post("/api/tasks/bulk", cancel | {"filter": {"ids": [one, two]}}).json()["changed"] == 1
    delete = {"action": "delete", "filter": {"ids": [one, two], "status": ["cancelled"]}}
    assert http.post("/api/tasks/bulk", delete).json()["changed"] == 2
    assert queue.count() == 0


@pytest.mark.parametrize("which", [{}, {"status": []}, {"tags": {}}, {"search": ""}, {"type": None}])
def test_bulk_without_a_condition_is_refused(queue: Face, http: Client, which: dict[str, Any]) -> None:
    queue.enqueue("job")
    refused = http.post("/api/tasks/bulk", {"action": "cancel", "filter": which})
    assert refused.status_code == 400
    assert queue.count(state="pending") == 1
    assert http.post("/api/tasks/bulk", {"action": "cancel", "filter": {"ids": []}}).json()["changed"] == 0
    refused = http.post("/api/tasks/bulk", {"action": "cancel", "filter": {"type": "job", "status": []}})
    assert (refused.status_code, "leave it out" in refused.text) == (400, True)


def test_bulk_gives_what_has_not_ended_a_priority(queue: Face, http: Client) -> None:
    ended = queue.task_in(Phase.COMPLETED)
    waiting = [UUID(http.create()["id"]) for _ in range(2)]
    body = {"action": "prioritize", "priority": -5, "filter": {"type": "job"}}

    assert http.post("/api/tasks/bulk", body | {"dryRun": True}).json()["changed"] == 2
    assert {queue.get(each).priority for each in waiting} == {0}
    assert http.post("/api/tasks/bulk", body).json() == {"action": "prioritize", "changed": 2, "dryRun": False}
    assert [queue.get(each).priority for each in (*waiting, ended.id)] == [-5, -5, 0]


@pytest.mark.parametrize("action", Action)
def test_bulk_without_a_status_means_the_tasks_that_the_table_names(queue: Face, http: Client, action: Action) -> None:
    tasks = {phase: queue.task_in(phase) for phase in [*TERMINAL, Phase.RUNNING, Phase.RETRYING, Phase.PENDING]}
    before = {phase: queue.bytes_of(task.id) for phase, task in tasks.items()}
    body = {"action": action, "filter": {"type": "job"}} | ({"priority": 1} if action == "prioritize" else {})

    assert http.post("/api/tasks/bulk", body).json()["changed"] == len(ACTIONS[action].by_default)
    changed = {phase for phase, task in tasks.items() if queue.bytes_of(task.id) != before[phase]}
    assert changed == set(ACTIONS[action].by_default)


@pytest.mark.parametrize("phase", [Phase.RETRYING, Phase.PENDING])
def test_what_waits_is_not_deleted_and_the_answer_says_what_to_do(queue: Face, http: Client, phase: Phase) -> None:
    answer = http.delete(f"/api/tasks/{queue.task_in(phase).id}")

    assert answer.status_code == 400
    assert answer.json()["detail"].endswith("; cancel first")
    assert http.delete("/api/tasks?olderThan=2100-01-01T00:00:00Z&status=failed").json() == {"deleted": 0}


@pytest.mark.parametrize(
    "body",
    [
        {"action": "retry", "filter": {}},
        {"action": "prioritize", "filter": {"type": "job"}},
        {"action": "prioritize", "filter": {"type": "job"}, "priority": "high"},
        {"action": "cancel", "filter": {"type": "job"}, "priority": 1},
        {"action": "explode", "filter": {"type": "job"}},
        {"action": "cancel", "filter": {"status": ["completed"]}},
        {"action": "retry"},
        {"action": "retry", "filter": {"ids": ["nonsense"]}},
        {"action": "retry", "filter": {"tags": {"a": "\u0000"}}},
    ],
)
def test_a_bad_bulk_action_is_400(http: Client, body: Any) -> None:
    assert http.post("/api/tasks/bulk", body).status_code == 400


def test_pause_and_resume_everything(queue: Face, http: Client) -> None:
    assert http.post("/api/tasks/pause").json() == {"paused": True}
    assert queue.is_paused()
    assert http.get("/api/control").json()["paused"] is True
    assert http.post("/api/tasks/resume").json() == {"paused": False}
    assert http.get("/api/control").json() == {"paused": False, "pauses": [], "limits": [], "keyLimits": []}


def test_pause_one_type_with_a_reason(http: Client) -> None:
    http.post("/api/tasks/pause", {"type": "job", "reason": "the printer burns"})

    control = http.get("/api/control").json()
    assert control["paused"] is False
    assert control["pauses"] == [
        {"type": "job", "since": "2030-01-01T12:00:00Z", "by": "anonymous", "reason": "the printer burns"}
    ]
    assert http.post("/api/tasks/resume", {"type": "job"}).json() == {"paused": False}


def test_rate_limits_are_set_and_lifted(queue: Face, http: Client) -> None:
    response = http.post("/api/tasks/rate-limit", {"tasksPerSecond": 10})
    assert response.text == '{"tasksPerSecond":10}'
    http.post("/api/tasks/rate-limit", {"tasksPerSecond": 2.5, "type": "job"})
    assert queue.get_rate_limit("job") == 2.5
    assert {limit["type"]: limit["tasksPerSecond"] for limit in http.get("/api/control").json()["limits"]} == {
        None: 10,
        "job": 2.5,
    }
    assert http.post("/api/tasks/rate-limit", {"tasksPerSecond": 0}).json() == {"tasksPerSecond": 0}
    assert queue.get_rate_limit() == 0


def test_the_burst_of_a_rate_limit_is_shown(queue: Face, http: Client) -> None:
    queue.plain.set_rate_limit(5, "job", burst=20)

    expected = {"type": "job", "tasksPerSecond": 5, "burst": 20, "maxRunning": None}
    assert http.get("/api/control").json()["limits"] == [expected]


@pytest.mark.parametrize("value", [-1, "10", True, None, 1e12, 5e-324])
def test_a_bad_rate_limit_is_400(http: Client, value: Any) -> None:
    response = http.post("/api/tasks/rate-limit", {"tasksPerSecond": value})

    assert (response.status_code, response.json()["field"]) == (400, "tasksPerSecond")


def test_a_concurrency_limit_is_set(http: Client) -> None:
    assert http.post("/api/tasks/concurrency-limit", {"maxRunning": 4, "type": "job"}).json() == {"maxRunning": 4}
    assert http.get("/api/control").json()["limits"][0]["maxRunning"] == 4


def test_key_limits_are_set_listed_and_forgotten(http: Client) -> None:
    each = {"key": None, "type": None, "maxRunning": 2}
    one = {"key": "ada", "type": "job", "maxRunning": 0}
    assert http.post("/api/tasks/key-limit", {"maxRunning": 2}).json() == {"keyLimits": [each]}
    assert http.post("/api/tasks/key-limit", one).json() == {"keyLimits": [each, one]}
    assert http.get("/api/control").json()["keyLimits"] == [each, one]
    assert http.post("/api/tasks/key-limit", {"maxRunning": None}).json() == {"keyLimits": [one]}


@pytest.mark.parametrize("body", [{}, {"maxRunning": -1}, {"maxRunning": 1, "key": ""}, {"maxRunning": "2"}])
def test_a_bad_key_limit_is_400(http: Client, body: Any) -> None:
    assert http.post("/api/tasks/key-limit", body).status_code == 400


def test_types_and_workers_are_listed(queue: Face, http: Client) -> None:
    queue.worker("job", "mail", worker_id="w1")
    http.create()

    types = {each["type"]: each for each in http.get("/api/types").json()["types"]}
    assert (types["job"]["pending"], types["job"]["workers"], types["mail"]["pending"]) == (1, 1, 0)
    (worker,) = http.get("/api/workers").json()["workers"]
    assert (worker["workerId"], worker["types"], worker["alive"]) == ("w1", ["job", "mail"], True)


def test_the_life_of_a_schedule(queue: Face, http: Client) -> None:
    body = {
        "name": "nightly",
        "type": "report",
        "cron": "0 3 * * *",
        "payload": {"n": 1},
        "options": {"maxAttempts": 5},
    }

    made = http.post("/api/schedules", body)
    assert made.status_code == 201
    assert made.json()["nextRuns"][:2] == ["2030-01-02T03:00:00Z", "2030-01-03T03:00:00Z"]
    assert http.post("/api/schedules", body).status_code == 409
    changed = {key: value for key, value in body.items() if key != "name"} | {"cron": "0 4 * * *"}
    assert http.put("/api/schedules/nightly", changed).json()["nextRunAt"] == "2030-01-02T04:00:00Z"
    assert http.post("/api/schedules/nightly/pause").json()["pausedBy"] == "anonymous"
    assert http.post("/api/schedules/nightly/resume").json()["pausedAt"] is None
    ran = http.post("/api/schedules/nightly/run")
    assert ran.status_code == 201
    task = queue.read(ran.json()["id"])
    assert (task.name, task.payload, task.max_attempts) == ("report", {"n": 1}, 5)
    nothing = {**changed, "payload": None}
    assert http.put("/api/schedules/nightly", nothing).json()["payload"] is None
    assert queue.read(http.post("/api/schedules/nightly/run").json()["id"]).payload is None
    assert [each["name"] for each in http.get("/api/schedules").json()["schedules"]] == ["nightly"]
    assert http.delete("/api/schedules/nightly").status_code == 204
    assert http.get("/api/schedules/nightly").status_code == 404


def test_a_schedule_whose_name_has_slashes_is_found_by_it(queue: Face, http: Client) -> None:
    """As the one of a repeated task has whose type has slashes."""
    name = http.create("reports/daily", repeat={"every": 60})["schedule"]
    path = f"/api/schedules/{quote(name, safe='')}"

    assert http.get(path).json()["name"] == name
    assert http.put(path, {"type": "reports/daily", "every": 5}).json()["every"] == 5
    assert http.post(f"{path}/pause").json()["pausedBy"] == "anonymous"
    assert http.post(f"{path}/resume").json()["pausedAt"] is None
    assert queue.read(http.post(f"{path}/run").json()["id"]).name == "reports/daily"
    assert http.delete(path).status_code == 204
    assert queue.schedules() == []
    assert http.get("/api/schedules/").headers["location"] == "/api/schedules"


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x", "type": "job"},
        {"name": "x", "type": "job", "cron": "nonsense"},
        {"name": "x", "type": "job", "every": 0.001},
        {"name": "x", "type": "job", "every": 5, "cron": "* * * * *"},
        {"name": "", "type": "job", "every": 5},
        {"name": "x", "type": "job", "every": 5, "payload": {"a": "\u0000"}},
    ],
)
def test_a_bad_schedule_is_400(queue: Face, http: Client, body: Any) -> None:
    assert http.post("/api/schedules", body).status_code == 400
    assert queue.schedules() == []


@pytest.mark.parametrize("name", ["nobody", "a%00b", "%ED%A0%80"])
@pytest.mark.parametrize(
    "method, action", [("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/run")]
)
def test_an_unknown_schedule_is_404(http: Client, name: str, method: str, action: str) -> None:
    assert http.request(method, f"/api/schedules/{name}{action}").status_code == 404


def test_health_and_readiness(http: Client) -> None:
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ok"}
    assert [http.request("HEAD", path).status_code for path in ("/healthz", "/readyz")] == [200, 200]


def test_the_description_is_complete(http: Client) -> None:
    """Every operation says what it answers, also what it answers when it refuses."""
    description = http.get("/openapi.json").json()

    assert description["openapi"].startswith("3.1")
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation.get("description"), where
            assert operation["x-permission"], where
            assert "422" not in operation["responses"], where
            assert any(status.startswith("2") for status in operation["responses"]), where
            if operation["x-permission"] != "public":
                assert {"401", "403", "503"} <= set(operation["responses"]), where


def test_it_works_under_a_prefix(queue: Face, http: Client) -> None:
    from fastapi import FastAPI

    outer = FastAPI()
    outer.mount("/queue", queue.plain.asgi(auth=None))
    client = Client(queue, outer)

    created = client.post("/queue/api/tasks", {"type": "job"})
    assert created.status_code == 201
    assert created.headers["location"] == f"/queue/api/tasks/{created.json()['id']}"
    assert client.get(created.headers["location"]).status_code == 200
    described = client.get("/queue/openapi.json").json()
    assert described["servers"] == [{"url": "/queue"}]
    assert "/api/tasks" in described["paths"]
    client.close()


def test_requests_at_once_under_one_key_make_one_task(queue: Face, http: Client) -> None:
    async def at_once() -> list[Any]:
        posts = (
            http._client.post("/api/tasks", json={"type": "job"}, headers={"Idempotency-Key": "k"}) for _ in range(10)
        )
        return await asyncio.gather(*posts)

    answers = queue.run_coroutine(at_once())
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert queue.count() == 1
    assert len(http.get("/api/audit").json()["entries"]) == 1


@pytest.mark.backends("postgres-newest")
def test_a_database_that_is_away_is_503(database_url: str) -> None:
    nowhere = database_url.replace("?", "_gone?")  # no such database
    with open_queue(nowhere, "awaiting", connect_timeout_seconds=2.0) as queue:
        client = Client(queue, queue.plain.asgi(auth=None))
        for response in (client.post("/api/tasks", {"type": "job"}), client.get("/api/tasks"), client.get("/readyz")):
            assert response.status_code == 503
            assert response.headers["retry-after"] == "1"
        assert client.get("/healthz").status_code == 200
        client.close()


def test_latency_is_counted_by_time_and_compared_with_an_objective(queue: Face, http: Client) -> None:
    waits = {bucket_of(0.02): 95, bucket_of(30.0): 5}
    done = statistics.Done("job", "completed", 100, waits, {})
    queue.do(lambda: statistics.add_metrics([done]))

    found = http.get("/api/metrics/latency?seconds=3600&type=job&within=5&target=90").json()
    assert (found["count"], found["within"], found["budget"]) == (100, 95.0, 50.0)
    (step,) = [each for each in found["points"] if sum(each["counts"])]
    assert sorted(step["counts"])[-2:] == [5, 95]
    assert found["bounds"] == sorted(found["bounds"])
    empty = http.get("/api/metrics/latency?kind=run&type=other").json()
    assert (empty["count"], empty["within"], empty["budget"]) == (0, None, None)
    assert http.get("/api/metrics/latency?target=100").status_code == 400


def test_a_paced_retry_gives_each_task_its_own_due_time_and_is_told_of_until_the_last(
    queue: Face, http: Client
) -> None:
    for number in range(5):
        queue.cancel(queue.enqueue("job", number))
    asked = {"action": "retry", "filter": {"type": "job", "status": ["cancelled"]}, "rate": 0.5}
    assert http.post("/api/tasks/bulk", asked).json()["changed"] == 5
    due = [task.scheduled_at for task in reversed(queue.list(name="job"))]
    assert [(each - due[0]).total_seconds() for each in due] == [0, 2, 4, 6, 8]

    (paced,) = http.get("/api/tasks/bulk").json()["retries"]
    assert (paced["type"], paced["count"], paced["rate"], paced["released"]) == ("job", 5, 0.5, 1)
    queue.advance(5)
    assert http.get("/api/tasks/bulk").json()["retries"][0]["released"] == 3
    queue.advance(60)
    assert http.get("/api/tasks/bulk").json() == {"retries": []}
    refused = http.post("/api/tasks/bulk", {**asked, "action": "cancel"})
    assert (refused.status_code, "rate belongs to retry" in refused.text) == (400, True)
