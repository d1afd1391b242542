"""Live numbers: server-sent events and Prometheus."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tasklib import Config, TaskQueue
from tasklib.storage.operations.access import tokens
from tests.fixtures.queues import Face
from tests.integration.http.conftest import Client
from tests.integration.http.serving import Server

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


def snapshots(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_a_change_is_told_to_everybody_who_listens(database_url: str, tmp_path: Path) -> None:
    with Server(database_url, tmp_path) as server, TaskQueue(Config(database_url=database_url)) as queue:
        with httpx.Client(base_url=server.url, timeout=180) as client:
            with client.stream("GET", "/api/events") as one, client.stream("GET", "/api/events") as two:
                assert one.headers["content-type"].startswith("text/event-stream")
                told = [snapshots(one), snapshots(two)]
                assert [next(each)["stats"]["pending"] for each in told] == [0, 0]
                queue.enqueue("job")
                for each in told:
                    assert any(seen["stats"]["pending"] == 1 for seen in each)
            with client.stream("GET", "/api/events") as again:
                assert next(snapshots(again))["stats"]["pending"] == 1
    assert server.code == 0


def test_something_is_sent_while_nothing_changes(database_url: str, tmp_path: Path) -> None:
    with Server(database_url, tmp_path) as server, httpx.Client(base_url=server.url, timeout=180) as client:
        with client.stream("GET", "/api/events") as stream:
            assert any(line == "event: beat" for line in stream.iter_lines())


def test_who_listens_or_waits_is_let_go_when_the_service_stops(database_url: str, tmp_path: Path) -> None:
    server = Server(database_url, tmp_path)
    with ThreadPoolExecutor() as threads, server, httpx.Client(base_url=server.url, timeout=180) as client:
        instance = client.post("/api/workers", json={"workerId": "shell", "types": ["job"]}).json()["instance"]
        waiting = threads.submit(client.post, f"/api/workers/{instance}/claim", json={"waitSeconds": 20})
        with client.stream("GET", "/api/events") as listening:
            told = snapshots(listening)
            next(told)
            server.stop()
            list(told)
        assert waiting.result().json() == {"tasks": []}
    assert server.code == 0
    assert "ERROR" not in server.log


class Listener:
    """Reads events from a socket of its own, which can be cut."""

    def __init__(self, url: str, last: str = "") -> None:
        host, port = url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=180)
        self.socket.sendall(f"GET /api/events HTTP/1.1\r\nHost: {host}\r\nLast-Event-ID: {last}\r\n\r\n".encode())
        self._lines = self.socket.makefile("r", encoding="utf-8")

    def event(self) -> tuple[str, Any]:
        """The next event: its id and what it says."""
        name = ""
        for line in self._lines:
            if line.startswith("id: "):
                name = line.removeprefix("id: ").strip()
            if line.startswith("data: "):
                return name, json.loads(line.removeprefix("data: "))
        raise AssertionError("the stream has ended")

    def cut(self) -> None:
        """End the connection as a lost network does: no farewell."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._lines.close()
        self.socket.close()


def test_after_a_cut_connection_it_goes_on_with_what_holds_now(database_url: str, tmp_path: Path) -> None:
    with Server(database_url, tmp_path) as server, TaskQueue(Config(database_url=database_url)) as queue:
        first = Listener(server.url)
        seen, before = first.event()
        first.cut()
        again = Listener(server.url, seen)
        assert again.event() == (seen, before)
        again.cut()
        queue.enqueue("job")
        resumed = Listener(server.url, seen)
        now, after = resumed.event()
        assert (after["stats"]["pending"], now != seen) == (1, True)
        resumed.cut()
    assert "Traceback" not in server.log


def test_listening_needs_a_token_once_there_is_one(database_url: str, tmp_path: Path) -> None:
    with TaskQueue(Config(database_url=database_url)) as queue:
        queue.database.run(lambda: tokens.create_token("ada", tokens.Role.PRODUCER))
    with Server(database_url, tmp_path) as server:
        assert httpx.get(f"{server.url}/api/events", timeout=180).status_code == 401


def test_metrics_are_in_the_format_of_prometheus(queue: Face, http: Client) -> None:
    http.create('odd "type" \\ here')
    http.create("job")
    queue.worker("job")
    queue.set_rate_limit(2.5, "job")

    response = http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }
    assert {name for name, *_ in found} == {
        f"tasklib_{name}"
        for name in (
            *("tasks", "types", "workers", "type_workers", "paused", "rate_limit", "oldest_due_seconds"),
            *("questions", "events_undelivered", "ends_uncounted", "groups_stopping"),
        )
    }
    assert found["tasklib_tasks", "pending", "job"] == 1
    assert found["tasklib_tasks", "pending", 'odd "type" \\ here'] == 1
    assert found["tasklib_workers",] == 1
    assert found["tasklib_rate_limit", "job"] == 2.5
