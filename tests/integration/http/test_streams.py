"""Streams of events end with the token that opened them, and nobody can take them all."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tasklib import TaskQueue
from tasklib.cli.main import main
from tasklib.storage.operations.access import tokens
from tests.integration.http.serving import Server
from tests.integration.http.test_live import snapshots

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


@pytest.fixture
def queue(database_url: str) -> Iterator[TaskQueue]:
    with TaskQueue(database_url) as made:
        yield made


def bearer(queue: TaskQueue, name: str, role: str = "viewer") -> dict[str, str]:
    made = queue.database.run(lambda: tokens.create_token(name, tokens.Role(role)))
    return {"Authorization": f"Bearer {made.secret}"}


def test_a_revoked_token_hears_nothing_more(queue: TaskQueue, database_url: str, tmp_path: Path) -> None:
    """Neither what happens next nor anything later, also while there is always something new to tell."""
    eve, ada, admin = bearer(queue, "eve"), bearer(queue, "ada"), bearer(queue, "root", "admin")
    with Server(database_url, tmp_path) as server, httpx.Client(base_url=server.url, timeout=180) as client:
        with (
            client.stream("GET", "/api/events", headers=eve) as one,
            client.stream("GET", "/api/events", headers=ada) as two,
        ):
            hers, theirs = snapshots(one), snapshots(two)
            assert [next(each)["stats"]["pending"] for each in (hers, theirs)] == [0, 0]
            assert main(["token", "revoke", "eve", "--database-url", database_url]) == 0
            queue.enqueue("job")
            assert [each for each in hers if each["stats"]["pending"]] == []
            assert next(each for each in theirs if each["stats"]["pending"])
            # One that is revoked through the service itself is let go without waiting for news.
            (found,) = [
                each for each in client.get("/api/tokens", headers=admin).json()["tokens"] if each["name"] == "ada"
            ]
            assert client.delete(f"/api/tokens/{found['id']}", headers=admin).status_code == 204
            for _ in theirs:
                pass  # until the stream ends


class Stream:
    """A connection that asks for events, with what it is answered."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        host, port = url.removeprefix("http://").split(":")
        self.connection = socket.create_connection((host, int(port)), timeout=180)
        said = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.connection.sendall(f"GET /api/events HTTP/1.1\r\nHost: {host}\r\n{said}\r\n".encode())
        self._lines = self.connection.makefile("r", encoding="utf-8")
        self.status = int(self._lines.readline().split()[1])

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self.connection.close()

    def hears(self) -> bool:
        """Whether it is told the numbers."""
        return any(line.startswith("data: ") and json.loads(line.removeprefix("data: ")) for line in self._lines)


@pytest.mark.backends("sqlite-file")
def test_one_viewer_cannot_take_every_stream(queue: TaskQueue, database_url: str, tmp_path: Path) -> None:
    """Also not by several connections under one name: it is the token that counts."""
    greedy, other, namesake = bearer(queue, "eve"), bearer(queue, "ada"), bearer(queue, "eve")
    with Server(database_url, tmp_path) as server, ExitStack() as open_streams:
        taken = 0
        while (stream := open_streams.enter_context(Stream(server.url, greedy))).status == 200:
            taken += 1
            assert taken <= 1000
        assert stream.status == 503
        for modest in (other, namesake, other):
            admitted = open_streams.enter_context(Stream(server.url, modest))
            assert admitted.status == 200
            assert admitted.hears()
        assert open_streams.enter_context(Stream(server.url, greedy)).status == 503
