"""A schedule that cannot run is shown with its error, and every other one as ever."""

from __future__ import annotations

from tests.fixtures.queues import Face
from tests.integration.http.conftest import Client


def test_a_schedule_that_cannot_run_is_listed_with_its_error(queue: Face, http: Client):
    for name in ("good", "bad"):
        assert http.post("/api/schedules", {"name": name, "type": "job", "every": 60}).status_code == 201
    queue.sql(
        'UPDATE tasklib_schedules SET plan = \'{"task": "job", "cron": "0 0 * * *", "tz": "Mars/Olympus"}\''
        " WHERE name = 'bad'"
    )

    bad, good = http.get("/api/schedules").json()["schedules"]

    assert good["error"] is None
    assert len(good["nextRuns"]) == 5
    assert "Mars/Olympus" in bad["error"]
    assert (bad["type"], bad["nextRuns"]) == ("job", [])
    assert http.post("/api/schedules/bad/run").status_code == 400
    assert http.put("/api/schedules/bad", {"type": "job", "every": 60}).json()["error"] is None
