"""Lanes: which attempts ran where and when, from what is stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tasklib.service.insights import lanes
from tasklib.storage.operations.reading import lanes as reading
from tests.fixtures.queues import Face
from tests.integration.http.conftest import Client

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


def work(queue: Face) -> None:
    """Three that complete under two keys, and one that fails twice."""
    plain = queue.plain

    @plain.task(name="job")
    async def job() -> None: ...

    @plain.task(name="fails", max_retries=1)
    async def fails() -> None:
        raise ValueError

    for key in ("a", "b"):
        queue.enqueue("job", {}, concurrency_key=key)
    queue.enqueue("job", {})
    queue.enqueue("fails", {})
    queue.process_batch()


def test_every_attempt_has_its_slot(queue: Face, http: Client) -> None:
    work(queue)
    found = http.get("/api/metrics/lanes?seconds=60").json()
    assert found["stepSeconds"] is None
    assert found["madeAfter"] is None
    (lane,) = found["lanes"]
    assert (lane["count"], lane["failed"], lane["lost"]) == (found["count"], 1, 0)
    outcomes = sorted((found["types"][each["type"]], each["outcome"]) for each in lane["attempts"])
    assert outcomes == [("fails", "failed"), *[("job", "completed")] * 3]
    assert all(0 <= each["began"] <= each["ended"] <= 60 for each in lane["attempts"])
    assert all(each["slot"] < lane["slots"] for each in lane["attempts"])
    only = http.get("/api/metrics/lanes?seconds=60&type=fails").json()
    assert (only["count"], only["types"]) == (1, ["fails"])


def test_lanes_of_concurrency_keys(queue: Face, http: Client) -> None:
    work(queue)
    found = http.get("/api/metrics/lanes?by=key").json()
    assert [(lane["name"], lane["count"], lane["alive"]) for lane in found["lanes"]] == [("a", 1, None), ("b", 1, None)]


def test_what_runs_now_ends_now(queue: Face, http: Client) -> None:
    http.create("job")
    instance = http.post("/api/workers", {"workerId": "far", "types": ["job"], "concurrency": 7}).json()["instance"]
    http.post(f"/api/workers/{instance}/claim")
    (lane,) = http.get("/api/metrics/lanes").json()["lanes"]
    assert (lane["name"], lane["slots"], lane["alive"]) == ("far", 7, True)
    assert [each["outcome"] for each in lane["attempts"]] == ["running"]


def test_many_are_added_up_in_bounded_steps(queue: Face, http: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    work(queue)
    whole = http.get("/api/metrics/lanes?seconds=600").json()
    monkeypatch.setattr(lanes, "MOST_ATTEMPTS", 2)
    monkeypatch.setattr(reading, "STRIDE", 1)
    found = http.get("/api/metrics/lanes?seconds=600").json()
    assert found["stepSeconds"] == 5.0
    (lane,) = found["lanes"]
    assert (lane["attempts"], lane["count"], lane["failed"]) == ([], whole["count"], 1)
    assert sum(each["ended"] for each in lane["cells"]) == whole["count"]
    assert sum(each["busy"] * 5.0 for each in lane["cells"]) == pytest.approx(
        whole["lanes"][0]["busySeconds"], abs=0.01
    )

    monkeypatch.setattr(reading, "REACH", 2)
    partial = http.get("/api/metrics/lanes?seconds=600").json()
    assert partial["count"] < whole["count"]
    assert partial["madeAfter"] is not None, "what was not looked at is said"


def test_another_time_has_other_attempts(queue: Face, http: Client) -> None:
    work(queue)
    before = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    found = http.get("/api/metrics/lanes", params={"until": before}).json()
    assert (found["count"], found["lanes"]) == (0, [])


@pytest.mark.parametrize(
    "query", [{"seconds": 0}, {"by": "nothing"}, {"until": "2026-01-01T00:00:00"}, {"seconds": 8 * 86_400}]
)
def test_a_bad_question_is_refused(http: Client, query: dict[str, Any]) -> None:
    assert http.get("/api/metrics/lanes", params=query).status_code == 400
