"""`/metrics` of workers and of the service, and what the shipped dashboard and alerts make of it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tasklib import AsyncTaskContext, TaskQueue
from tasklib.core.insights.histogram import LAST, bounds_of, bucket_of
from tasklib.http.routes.monitoring.metrics import STATES
from tasklib.http.schemas.fields import status_of
from tasklib.worker.recording.metrics import OUTCOMES, Metrics
from tasklib.worker.supervisor import exposition
from tests.fixtures import python
from tests.fixtures.waiting import eventually
from tools.problems import ROOT

TASKS = """
import os, time
from tasklib import StepFailed, TaskContext, TaskQueue

queue = TaskQueue({url!r})

@queue.task(max_retries=0)
def divide(by: int) -> float:
    return 1 / by

@queue.task(max_retries=0)
def pid() -> int:
    return os.getpid()

def flow(ctx: TaskContext) -> None:
    ctx.step(abs, -1)
    ctx.options(transactional=True).step(len, [])
    try:
        ctx.options(name="wrong").step(divide, 0)
    except StepFailed:
        ctx.step(str)

queue.task(name="here")(flow)
queue.task(name="beside", isolation="process")(flow)
"""

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@contextmanager
def worker(folder: Path, url: str, processes: int) -> Iterator[str]:
    """A real worker with its probe; gives the address of its metrics."""
    (folder / "measured.py").write_text(TASKS.format(url=url))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tasklib", "worker", "measured"]
    command += ["--processes", str(processes), "--probe-port", str(port), "--concurrency", "1"]
    process = python.popen(command, cwd=folder)
    try:
        eventually(lambda: is_ready(port))
        yield f"http://127.0.0.1:{port}/metrics"
    finally:
        process.terminate()
        process.wait(180)


def is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=180).status_code == 200
    except httpx.TransportError:
        return False


def samples(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    return found.get((name, tuple(sorted(labels.items()))), 0.0)


def test_counters_go_on_when_a_worker_process_is_killed(sqlite_url: str, tmp_path: Path) -> None:
    with TaskQueue(sqlite_url) as queue, worker(tmp_path, sqlite_url, processes=2) as url:

        def read() -> Samples:
            return samples(httpx.get(url, timeout=180).text)

        ids = [queue.enqueue("divide", {"by": by}, max_attempts=1) for by in (1, 2, 0, 4)]
        for each in ids:
            queue.wait(each, timeout=180)
        eventually(lambda: value(read(), "tasklib_attempts_total", type="divide", outcome="completed") == 3)
        eventually(lambda: value(read(), "tasklib_attempts_total", type="divide", outcome="failed") == 1)
        found = read()
        assert found["tasklib_attempts_total", (("outcome", "buried"), ("type", "divide"))] == 0
        assert value(found, "tasklib_run_seconds_count", type="divide") == 4
        assert value(found, "tasklib_wait_seconds_count", type="divide") == 4
        assert value(found, "tasklib_run_seconds_bucket", type="divide", le="+Inf") == 4
        assert value(found, "tasklib_run_seconds_sum", type="divide") > 0
        assert [value(found, "tasklib_worker_up", process=each) for each in "12"] == [1, 1]
        assert [value(found, "tasklib_worker_slots", process=each) for each in "12"] == [1, 1]

        killed = queue.wait(queue.enqueue("pid"), timeout=180).result
        assert killed is not None
        eventually(lambda: value(read(), "tasklib_attempts_total", type="pid", outcome="completed") == 1)
        os.kill(killed["value"], signal.SIGKILL)
        eventually(lambda: sum(value(read(), "tasklib_worker_restarts_total", process=each) for each in "12") == 1)
        queue.wait(queue.enqueue("divide", {"by": 5}), timeout=180)
        eventually(lambda: value(read(), "tasklib_attempts_total", type="divide", outcome="completed") == 4)
        assert value(read(), "tasklib_attempts_total", type="divide", outcome="failed") == 1


def test_recorded_steps_are_counted_wherever_they_run(sqlite_url: str, tmp_path: Path) -> None:
    with TaskQueue(sqlite_url) as queue, worker(tmp_path, sqlite_url, processes=1) as url:
        for name in ("here", "beside"):
            task = queue.wait(queue.enqueue(name, {}, max_attempts=1), timeout=180)
            assert task.state == "completed", task.error

        def steps() -> dict[tuple[str, str], float]:
            found = samples(httpx.get(url, timeout=180).text)
            labels = [(dict(labels), count) for (name, labels), count in found.items() if name == "tasklib_steps_total"]
            return {(each["type"], each["state"]): count for each, count in labels}

        counts = {"done": 3.0, "failed": 1.0}
        eventually(lambda: steps() == {(name, state): counts[state] for name in ("here", "beside") for state in counts})


def test_histograms_count_what_took_at_most_as_long() -> None:
    metrics = Metrics()
    for seconds in (0.0001, 0.00159, 0.00161, 1.0, 3600.0):
        metrics.count("work", "completed", seconds, None)
    found = samples(exposition.expose([metrics.totals()], []).decode())

    at_most = {float(dict(labels)["le"]): count for (name, labels), count in found.items() if name.endswith("_bucket")}
    assert at_most[0.0016] == 2
    assert at_most[0.0032] == 3
    assert at_most[0.8192] == 3
    assert at_most[1.6384] == 4
    assert at_most[float("inf")] == 5
    assert value(found, "tasklib_run_seconds_sum", type="work") == pytest.approx(3601.0033)
    assert all(bucket_of(bounds_of(bucket)[1] * 0.999999) == bucket for bucket in range(LAST))


def test_what_cannot_be_added_to_the_statistics_is_taken_again() -> None:
    metrics = Metrics()
    metrics.count("work", "completed", 1.0, 2.0)
    first = metrics.take()
    assert metrics.take() == []
    metrics.put_back(first)
    metrics.count("work", "completed", 1.0, None)
    (both,) = metrics.take()
    assert (both.count, sum(both.runs.values()), sum(both.waits.values())) == (2, 2, 1)
    assert metrics.counted["work", "completed"].count == 2


async def test_the_service_tells_how_long_each_type_has_been_due(database_url: str) -> None:
    async with TaskQueue(database_url) as queue:
        await queue.aenqueue("old", run_after=None)
        await queue.aenqueue("later", delay_seconds=3600)
        await queue.aenqueue("keyed", concurrency_key="tenant-1")
        transport = httpx.ASGITransport(queue.asgi(auth=None))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            found = samples((await client.get("/metrics")).text)

    assert value(found, "tasklib_oldest_due_seconds", type="old") > 0
    assert value(found, "tasklib_oldest_due_seconds", type="keyed") > 0
    assert found["tasklib_oldest_due_seconds", (("type", "later"),)] == 0
    assert value(found, "tasklib_tasks", type="later", status="delayed") == 1


async def test_the_service_tells_what_workflows_wait_for(database_url: str) -> None:
    async with TaskQueue(database_url) as queue:

        @queue.task
        def child() -> None: ...

        @queue.task
        async def waits(ctx: AsyncTaskContext, kind: str) -> None:
            match kind:
                case "sleep":
                    await ctx.sleep(3600)
                case "answer":
                    await ctx.wait("ok", bool, ask="Go on?")
                case "event":
                    await ctx.wait("go", int)
                case _:
                    await ctx.run(child.options(delay_seconds=3600).bind())

        await waits.asubmit_many({"kind": kind} for kind in ("sleep", "sleep", "answer", "event", "children"))
        await queue.aprocess_batch()
        transport = httpx.ASGITransport(queue.asgi(auth=None))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            found = samples((await client.get("/metrics")).text)

    waiting = {dict(labels)["kind"]: count for (name, labels), count in found.items() if name == "tasklib_waiting"}
    assert waiting == {"sleep": 2, "answer": 1, "event": 1, "children": 1}
    assert value(found, "tasklib_questions") == 1
    for name in ("events_undelivered", "ends_uncounted", "groups_stopping"):
        assert value(found, f"tasklib_{name}") == 0


def test_without_the_client_library_the_worker_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from tasklib.worker.supervisor import probe

    class WithoutLibrary:
        def status(self) -> dict[str, object]:
            return {}

        def metrics(self) -> bytes:
            raise ModuleNotFoundError("prometheus_client", name="prometheus_client")

    answer = probe._response("GET /metrics HTTP/1.1", WithoutLibrary())
    assert answer.startswith(b"HTTP/1.1 501")
    assert b"[metrics]" in answer


def known_names() -> set[str]:
    """Every series that workers and the service expose."""
    names = {f"tasklib_{name}" for name, *_ in exposition.GAUGES}
    names |= {"tasklib_attempts_total", "tasklib_steps_total", "tasklib_worker_restarts_total"}
    names |= {f"tasklib_{each}_seconds_{part}" for each in ("wait", "run") for part in ("bucket", "count", "sum")}
    source = (ROOT / "src/tasklib/http/routes/monitoring/metrics.py").read_text()
    return names | {f"tasklib_{name}" for name in re.findall(r'_gauge\(\s*"(\w+)"', source)}


def named_in(expression: str) -> set[str]:
    return set(re.findall(r"\btasklib_\w+", expression))


def wrong_labels(expression: str) -> set[str]:
    """Values of labels in it that no series has."""
    known = {*OUTCOMES.values(), "completed", *map(status_of, STATES)}
    given = re.findall(r'(?:status|outcome)=~?"([^"]*)"', expression)
    return {value for each in given for value in each.split("|")} - known


def test_every_panel_of_the_dashboard_shows_a_series_that_exists() -> None:
    dashboard = json.loads((ROOT / "deploy/grafana/tasklib.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]

    assert len(panels) >= 8
    assert all(named_in(each) and named_in(each) <= known_names() for each in expressions)
    assert set().union(*map(wrong_labels, expressions)) == set()


def test_every_alert_asks_for_a_series_that_exists() -> None:
    groups = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]

    assert len(rules) >= 5
    for rule in rules:
        assert named_in(rule["expr"]), rule["alert"]
        assert named_in(rule["expr"]) <= known_names(), rule["alert"]
        assert wrong_labels(rule["expr"]) == set(), rule["alert"]
        assert {"summary", "description"} <= set(rule["annotations"])


def test_every_series_is_in_the_documentation() -> None:
    page = (ROOT / "docs/production/observability.md").read_text()
    series = {re.sub(r"_(bucket|count|sum)$", "", name) for name in known_names()}
    assert {name for name in series if f"`{name}" not in page} == set()
