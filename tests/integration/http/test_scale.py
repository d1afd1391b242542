"""How many workers it takes, as an autoscaler asks."""

from __future__ import annotations

import pytest

from tests.fixtures.queues import Face
from tests.integration.http.conftest import Client


def test_an_autoscaler_reads_one_number_by_type(queue: Face, http: Client) -> None:
    for _ in range(3):
        http.create("resize")
    http.create("mail")
    queue.worker("resize", worker_id="w1")

    whole = http.get("/api/scale").json()
    assert (whole["due"], whole["processing"], whole["slots"], whole["workersAlive"]) == (4, 0, 2, 1)
    assert {each["type"]: each["due"] for each in whole["types"]} == {"mail": 1, "resize": 3}
    one = http.get("/api/scale?type=resize&objective=1&concurrency=2").json()
    assert (one["workers"], one["slots"], one["slotsPerWorker"], one["objectiveSeconds"]) == (2, 3, 2, 1.0)
    assert (one["total"], one["types"][0]["secondsPerTask"], one["types"][0]["seconds"]) == (1, None, 0.75)
    # Scale to zero: nothing to do is 0, not an error, also for a type that nobody has seen.
    assert http.get("/api/scale?type=unheard").json()["workers"] == 0
    assert [each["type"] for each in http.get("/api/scale?type=resize&type=unheard").json()["types"]] == [
        "resize",
        "unheard",
    ]


@pytest.mark.parametrize("query", ["objective=0", "objective=x", "concurrency=0", "type=", "limit=3"])
def test_a_bad_question_is_400(http: Client, query: str) -> None:
    assert http.get(f"/api/scale?{query}").status_code == 400
