"""Objectives of types: stored, measured, and reported when they are at risk."""

from __future__ import annotations

from typing import Any

import pytest

from tasklib.core.insights.histogram import bucket_of
from tasklib.storage.operations import statistics
from tests.fixtures.queues import Face
from tests.integration.http.conftest import Client

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


def test_an_objective_is_stored_and_measured(queue: Face, http: Client) -> None:
    waits = {bucket_of(0.02): 95, bucket_of(30.0): 5}
    queue.do(lambda: statistics.add_metrics([statistics.Done("job", "completed", 100, waits, {bucket_of(1.0): 100})]))
    assert http.get("/api/objectives").json() == {"objectives": []}

    asked = {"type": "job", "kind": "wait", "withinSeconds": 5, "target": 90}
    assert http.post("/api/objectives", asked).json() == {"holds": True}
    (found,) = http.get("/api/objectives").json()["objectives"]
    assert (found["type"], found["kind"], found["withinSeconds"], found["target"]) == ("job", "wait", 5, 90)
    assert (found["count"], found["within"], found["budget"], found["atRisk"]) == (100, 95.0, 50.0, False)

    http.post("/api/objectives", {**asked, "target": 99.5})
    http.post("/api/objectives", {"kind": "run", "withinSeconds": 60})
    everything, found = http.get("/api/objectives").json()["objectives"]
    assert (everything["type"], everything["kind"], everything["within"]) == (None, "run", 100.0)
    assert (found["target"], found["atRisk"]) == (99.5, True)
    assert found["budget"] < 0


def test_an_objective_that_is_missed_is_a_finding(queue: Face, http: Client) -> None:
    waits = {bucket_of(0.02): 95, bucket_of(30.0): 5}
    queue.do(lambda: statistics.add_metrics([statistics.Done("job", "completed", 100, waits, {})]))
    http.post("/api/objectives", {"type": "job", "withinSeconds": 5, "target": 99.5})
    (found,) = [each for each in http.get("/api/findings").json()["findings"] if each["code"] == "objective_at_risk"]
    assert found["text"] == ("job misses its objective: 99.5 % start within 5 s, and 95 % did in the last day")
    assert (found["severity"], found["count"], found["type"]) == ("warning", 5, "job")

    assert http.post("/api/objectives", {"type": "job", "withinSeconds": None}).json() == {"holds": False}
    assert http.get("/api/objectives").json() == {"objectives": []}
    assert "objective_at_risk" not in [each["code"] for each in http.get("/api/findings").json()["findings"]]


@pytest.mark.parametrize(
    "body", [{}, {"withinSeconds": 0}, {"withinSeconds": 5, "target": 100}, {"withinSeconds": 5, "kind": "sleep"}]
)
def test_what_is_no_objective_is_refused(http: Client, body: dict[str, Any]) -> None:
    assert http.post("/api/objectives", body).status_code == 400
