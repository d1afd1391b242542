"""Series for charts, and counts that stay exact and quick however much is finished."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tasklib import TaskContext
from tasklib.http.live import cache
from tasklib.http.parts import parts_of_app
from tasklib.storage.operations import statistics
from tasklib.storage.operations.reading import lists
from tests.fixtures.queues import Face
from tests.integration.http.conftest import Client

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


def work(queue: Face, *, good: int, bad: int) -> None:
    """Let a worker end some tasks well and some badly."""
    plain = queue.plain

    @plain.task(name="job", max_retries=0)
    async def job(fails: bool) -> None:
        if fails:
            raise ValueError

    for n in range(good + bad):
        queue.enqueue("job", {"fails": n >= good})
    assert queue.process_batch() == good + bad


def test_what_workers_do_is_in_the_series_of_its_minute(queue: Face, http: Client) -> None:
    work(queue, good=3, bad=2)

    series = http.get("/api/metrics/series", params={"seconds": 600, "step": 60}).json()
    assert (series["stepSeconds"], len(series["points"])) == (60, 10)
    last = series["points"][-1]
    assert last["ended"] == {"completed": 3, "failed": 2, "retried": 0, "cancelled": 0, "buried": 0}
    assert 0 < last["run"]["p50"] <= last["run"]["p99"] < 60
    assert last["wait"]["p95"] is not None
    assert series["points"][0]["ended"]["completed"] == 0
    assert series["points"][0]["run"] == {"p50": None, "p95": None, "p99": None}


def test_series_and_summary_by_type(queue: Face, http: Client) -> None:
    work(queue, good=1, bad=1)

    (only,) = http.get("/api/metrics/types").json()["types"]
    assert (only["type"], only["ended"]["completed"], only["ended"]["failed"]) == ("job", 1, 1)
    other = http.get("/api/metrics/series", params={"type": "other"}).json()
    assert sum(point["ended"]["completed"] for point in other["points"]) == 0


def test_any_time_can_be_asked_for(queue: Face, http: Client) -> None:
    work(queue, good=2, bad=1)
    together = http.get("/api/metrics/types").json()["all"]
    assert (together["type"], together["ended"]["completed"], together["ended"]["failed"]) == ("", 2, 1)
    assert together["run"]["p50"] is not None

    until = (queue.now - timedelta(hours=2)).isoformat()
    before = http.get("/api/metrics/types", params={"until": until}).json()
    assert (before["types"], before["all"]["ended"]["completed"]) == ([], 0)
    series = http.get("/api/metrics/series", params={"until": until}).json()
    assert sum(point["ended"]["completed"] for point in series["points"]) == 0
    assert datetime.fromisoformat(series["points"][-1]["at"]) < datetime.fromisoformat(until)
    assert http.get("/api/metrics/latency", params={"until": until, "kind": "run"}).json()["count"] == 0


def test_what_a_workflow_waits_for_is_not_its_time_in_the_queue(queue: Face, http: Client) -> None:
    @queue.plain.task(name="rests")
    def rests(ctx: TaskContext, seconds: float) -> None:
        ctx.step(str, 1)
        if seconds:
            ctx.sleep(seconds)

    for seconds in (0, 600):
        queue.enqueue("rests", {"seconds": seconds})
    queue.process_batch()
    queue.advance(601)
    assert queue.process_batch() == 1

    latency = http.get("/api/metrics/latency", params={"seconds": 3600, "within": 60}).json()
    assert (latency["count"], latency["within"]) == (1, 100.0)
    assert http.get("/api/metrics/latency", params={"seconds": 3600, "kind": "run"}).json()["count"] == 2


def test_the_depth_is_shown_where_somebody_looked(queue: Face, http: Client) -> None:
    queue.enqueue("job")
    queue.enqueue("job", delay_seconds=60)
    queue.do(lambda: statistics.keep_statistics())

    points = http.get("/api/metrics/series").json()["points"]
    assert points[-1]["depth"] == {"due": 1, "delayed": 1, "retrying": 0, "running": 0}
    assert points[0]["depth"] is None


def test_what_remote_workers_do_is_counted_too(queue: Face, http: Client) -> None:
    http.create("job")
    instance = http.post("/api/workers", {"workerId": "far", "types": ["job"]}).json()["instance"]
    (task,) = http.post(f"/api/workers/{instance}/claim").json()["tasks"]
    http.post(f"/api/tasks/{task['id']}/complete", {"version": task["version"]})
    parts_of_app(http.app).workers.upkeep._next = 0.0
    http.post(f"/api/workers/{instance}/claim")

    assert http.get("/api/metrics/series").json()["points"][-1]["ended"]["completed"] == 1


@pytest.mark.parametrize(
    "query", [{"seconds": 59}, {"step": 61}, {"step": 0}, {"seconds": 30 * 86_400, "step": 60}, {"unknown": 1}]
)
def test_a_bad_series_is_refused(http: Client, query: dict[str, Any]) -> None:
    assert http.get("/api/metrics/series", params=query).status_code == 400


def test_counts_of_a_large_queue_are_kept_for_a_moment_and_renewed(
    queue: Face, http: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "FEW_ROWS", -1)
    monkeypatch.setattr(cache, "PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr(cache, "QUICK_SECONDS", 0.0)
    queue.enqueue("job")

    assert http.get("/api/tasks/stats").json()["pending"] == 1
    queue.enqueue("job")
    kept = http.get("/api/tasks/stats").json()
    assert (kept["pending"], kept["maxAgeSeconds"]) == (1, 5)
    assert http.get("/api/tasks", params={"status": "pending"}).json()["total"] == 1
    monkeypatch.setattr(cache, "OLDEST_SECONDS", 0.0)
    assert http.get("/api/tasks/stats").json()["pending"] == 2
    assert http.get("/api/tasks", params={"status": "delayed"}).json()["total"] == 0


def test_counts_of_a_large_queue_that_are_quickly_made_are_new(
    queue: Face, http: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert http.get("/api/tasks/stats").json()["maxAgeSeconds"] == 0
    monkeypatch.setattr(lists, "FEW_ROWS", -1)
    monkeypatch.setattr(cache, "PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr(cache, "QUICK_SECONDS", 3600.0)
    monkeypatch.setattr(cache, "NEW_SECONDS", 1e-9)
    for number in (1, 2):
        queue.enqueue("job")
        stats = http.get("/api/tasks/stats").json()
        assert (stats["pending"], stats["maxAgeSeconds"]) == (number, 1)


def test_the_task_that_has_waited_the_longest_is_found(queue: Face, http: Client) -> None:
    assert http.get("/api/metrics/oldest").json() == {"id": None, "type": None, "dueAt": None}
    queue.enqueue("later", delay_seconds=60)
    assert http.get("/api/metrics/oldest").json()["id"] is None
    keyed = queue.enqueue("b", concurrency_key="tenant-7")
    queue.advance(1)
    for name, priority in (("a", 5), ("a", 0), ("c", 9)):
        queue.enqueue(name, priority=priority)

    assert http.get("/api/metrics/oldest").json()["id"] == str(keyed.id)
    queue.cancel(keyed.id)
    queue.advance(1)
    queue.enqueue("a", priority=7)
    assert http.get("/api/metrics/oldest").json()["dueAt"] < queue.now.isoformat()
    assert http.get("/api/metrics/oldest").json()["type"] in ("a", "c")
