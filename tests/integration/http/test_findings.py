"""What is wrong now, and what was changed: told by the service to every front end."""

from __future__ import annotations

from functools import partial

import pytest

from tasklib.storage.operations import workers
from tests.fixtures.queues import Face
from tests.integration.http.conftest import Client

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


def test_findings_and_changes_say_what_is_wrong_and_who_did_it(queue: Face, http: Client) -> None:
    http.create("mail")
    assert http.post("/api/tasks/pause", {"type": "mail", "reason": "provider is down"}).status_code == 200

    (found,) = http.get("/api/findings").json()["findings"]
    assert (found["code"], found["severity"], found["count"], found["type"]) == ("paused", "warning", 1, "mail")
    assert found["text"].endswith(": provider is down")
    assert found["actions"][0] == {"action": "resume", "label": "Resume", "target": "mail"}
    (change,) = http.get("/api/changes").json()["changes"]
    assert (change["kind"], change["text"]) == ("action", "anonymous paused mail")
    assert http.get("/api/changes?seconds=1").status_code == 400


def test_the_last_worker_that_ended_without_saying_goodbye_is_found(queue: Face, http: Client) -> None:
    held, _ = queue.enqueue("job"), queue.enqueue("job")
    queue.worker().take(held)
    assert http.get("/api/findings").json() == {"findings": []}
    queue.advance(120)  # nobody is there to record that it was lost

    (found,) = http.get("/api/findings").json()["findings"]
    assert (found["code"], found["severity"], found["count"]) == ("no_workers", "critical", 2)
    assert "ended without saying goodbye, 2 tasks wait" in found["text"]


def test_a_lost_worker_is_listed_before_those_that_stopped_however_many(queue: Face, http: Client) -> None:
    lost, *stopped = [queue.worker() for _ in range(102)]
    queue.advance(15)
    queue.do(lambda: workers.recover_from(lost.instance, queue.plain.config.backoff))
    queue.advance(15)
    for instance in (each.instance for each in stopped):
        queue.do(partial(workers.forget_worker, instance))

    ended = http.get("/api/workers").json()["ended"]
    assert (len(ended), ended[-1]["ending"], {each["ending"] for each in ended[:-1]}) == (100, "lost", {"stopped"})
