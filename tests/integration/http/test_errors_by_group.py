"""Errors over HTTP: groups of what failed for good, their hours, their tasks, and starting them anew."""

from __future__ import annotations

import pytest

from tasklib.storage.operations.reading import lists
from tests.fixtures.queues import Face
from tests.integration.http.conftest import Client

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


def fail(queue: Face, number: int, name: str = "charge") -> None:
    """Let tasks fail for good, each with another message."""

    def handler(payload: dict[str, object]) -> None:
        raise ValueError(f"order {payload['order']} has no card, token=hunter2")

    queue.plain.register_handler(name, handler)
    for order in range(number):
        queue.enqueue(name, {"order": order, "password": "hunter2"}, max_attempts=1)
    assert queue.process_batch() == number


def test_failures_that_are_alike_are_one_group(queue: Face, http: Client) -> None:
    fail(queue, 3)
    (group,) = http.get("/api/errors").json()["groups"]

    assert (group["type"], group["count"], group["hours"][-1]) == ("charge", 3, 3)
    assert group["fingerprint"].startswith("ValueError in ")
    assert len(group["hours"]) == 24
    assert "has no card" in group["message"]
    assert "hunter2" not in group["message"]
    assert http.get(f"/api/tasks/{group['exampleId']}").json()["type"] == "charge"
    listed = http.get("/api/tasks", params={"fingerprint": group["fingerprint"]}).json()
    assert listed["total"] == 3
    assert http.get("/api/errors", params={"type": "other"}).json() == {"groups": []}


def test_a_group_is_counted_then_started_anew_at_a_rate(queue: Face, http: Client) -> None:
    fail(queue, 3)
    (group,) = http.get("/api/errors").json()["groups"]

    dry = http.post(f"/api/errors/{group['id']}/redrive", {"dryRun": True}).json()
    assert (dry, queue.count(state="failed")) == ({"changed": 3, "dryRun": True}, 3)
    done = http.post(f"/api/errors/{group['id']}/redrive", {"rate": 0.5}).json()
    assert done == {"changed": 3, "dryRun": False}
    assert queue.count(state="delayed") == 2
    assert http.post(f"/api/errors/{group['id']}/redrive").status_code == 404
    assert http.post("/api/errors/nothing/redrive").status_code == 404


@pytest.mark.parametrize("body", [{"rate": 0}, {"rate": -1}, {"rate": True}, {"rate": "fast"}, {"unknown": 1}])
def test_a_bad_redrive_is_refused(http: Client, body: dict[str, object]) -> None:
    assert http.post("/api/errors/any/redrive", body).status_code == 400


def test_groups_of_many_failures_are_remembered_until_some_start_anew(
    queue: Face, http: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "FEW_ROWS", 2)
    fail(queue, 3)
    (group,) = http.get("/api/errors").json()["groups"]
    for more, total in (("", 3), ("&type=charge&status=failed", 3), ("&status=buried", 0), ("&type=other", 0)):
        assert http.get(f"/api/tasks?fingerprint={group['fingerprint']}{more}").json()["total"] == total
    fail(queue, 1)
    assert http.get("/api/errors").json()["groups"] == [group]
    assert http.get("/api/errors?type=other").json()["groups"] == []
    assert http.post(f"/api/errors/{group['id']}/redrive").json()["changed"] == 4
    assert http.get("/api/errors").json()["groups"] == []


def test_a_group_is_muted_resolved_and_open_again_when_it_comes_again(queue: Face, http: Client) -> None:
    fail(queue, 2)
    (group,) = http.get("/api/errors").json()["groups"]
    assert (group["status"], group["markedAt"]) == ("open", None)
    codes = [each["code"] for each in http.get("/api/findings").json()["findings"]]
    assert "new_error" in codes

    muted = http.post(f"/api/errors/{group['id']}/status", {"status": "muted"}).json()
    assert muted["status"] == "muted"
    assert muted["markedAt"] is not None
    codes = [each["code"] for each in http.get("/api/findings").json()["findings"]]
    assert "new_error" not in codes, "nobody is told of what is muted"

    assert http.post(f"/api/errors/{group['id']}/status", {"status": "resolved"}).json()["status"] == "resolved"
    assert http.get(f"/api/errors/{group['id']}").json()["status"] == "resolved"
    queue.advance(1)
    fail(queue, 1)
    assert http.get(f"/api/errors/{group['id']}").json()["status"] == "reopened"
    again = [each for each in http.get("/api/findings").json()["findings"] if each["code"] == "error_again"]
    assert [each["count"] for each in again] == [3]
    assert http.post(f"/api/errors/{group['id']}/status", {"status": "open"}).json()["status"] == "open"
    assert http.get("/api/errors/unknown").status_code == 404
    assert http.post("/api/errors/unknown/status", {"status": "muted"}).status_code == 404
    assert http.post(f"/api/errors/{group['id']}/status", {"status": "wrong"}).status_code == 400
