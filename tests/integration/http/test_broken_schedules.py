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
    assert (bad["words"], good["words"]) == ("At 00:00 every day", None)
    assert http.post("/api/schedules/bad/run").status_code == 400
    assert http.put("/api/schedules/bad", {"type": "job", "every": 60}).json()["error"] is None


def test_a_cron_expression_is_told_in_words_before_it_is_a_schedule(http: Client):
    told = http.get("/api/cron?cron=0+9+*+*+mon-fri&tz=Europe/Paris").json()

    assert told["words"] == "At 09:00 on Monday through Friday"
    assert len(told["nextRuns"]) == 5
    assert http.get("/api/cron?cron=@daily").json()["words"] == "At 00:00 every day"
    for wrong in ("cron=61+*+*+*+*", "cron=0+9+*+*+*&tz=Mars/Olympus", "cron=", "tz=UTC"):
        assert http.get(f"/api/cron?{wrong}").status_code == 400
