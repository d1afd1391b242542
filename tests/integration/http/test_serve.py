"""`tasklib serve` and `tasklib token` as programs."""

from __future__ import annotations

import json
import socket
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest

from tasklib import Config, TaskQueue
from tasklib.cli.commands.programs.serve import listen
from tasklib.cli.main import main
from tests.fixtures import python
from tests.fixtures.waiting import eventually
from tests.integration.http.serving import Server

pytestmark = pytest.mark.backends("sqlite-file", "postgres-newest")


def run(database_url: str, *arguments: str) -> Any:
    server = Server(database_url, Path())
    return python.run(
        [*server.tasklib, *arguments], env=server.environment, capture_output=True, text=True, timeout=180
    )


def test_it_serves_and_stops_in_order(database_url: str, tmp_path: Path) -> None:
    with Server(database_url, tmp_path) as server, httpx.Client(base_url=server.url, timeout=180) as client:
        assert client.get("/readyz").json() == {"status": "ok"}
        created = client.post("/api/tasks", json={"type": "job", "payload": {"n": 1}})
        assert created.status_code == 201
        assert "server" not in created.headers

    assert server.code == 0
    with TaskQueue(Config(database_url=database_url)) as queue:
        assert queue.count() == 1


def test_a_token_closes_the_door_of_a_running_service(database_url: str, tmp_path: Path) -> None:
    with Server(database_url, tmp_path) as server, httpx.Client(base_url=server.url, timeout=180) as client:
        assert client.get("/api/tasks").status_code == 200
        made = json.loads(run(database_url, "token", "create", "me", "--role", "operator", "--json").stdout)
        eventually(lambda: client.get("/api/tasks").status_code == 401)
        assert client.get("/api/tasks", headers={"Authorization": f"Bearer {made['token']}"}).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_another_address_is_refused_without_tokens(sqlite_url: str, host: str) -> None:
    done = run(sqlite_url, "serve", "--host", host, "--port", "0")

    assert done.returncode == 2
    assert "tasklib token create" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.backends("sqlite-file")
def test_another_address_is_served_once_there_is_a_token(database_url: str, tmp_path: Path) -> None:
    run(database_url, "token", "create", "me")
    with Server(database_url, tmp_path, "--host", "0.0.0.0") as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{url}/healthz", timeout=180).status_code == 200
        assert httpx.get(f"{url}/api/tasks", timeout=180).status_code == 401


def test_a_port_that_is_taken_is_an_error_that_says_so(sqlite_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run(sqlite_url, "serve", "--port", str(taken.getsockname()[1]))

    assert done.returncode == 1
    assert "cannot listen" in done.stderr


def test_tables_of_another_version_are_not_served(sqlite_url: str) -> None:
    run(sqlite_url, "migrate")
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as raw:
        raw.execute("UPDATE tasklib_migrations SET checksum = 'other'")
    raw.close()
    done = run(sqlite_url, "serve", "--port", "0")

    assert done.returncode == 3
    assert "were made by another tasklib" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.backends("postgres-newest")  # the next one is about SQLite
def test_tokens_are_made_listed_and_revoked(database_url: str) -> None:
    made = run(database_url, "token", "create", "ci", "--role", "producer", "--expires", "30d")
    assert made.stdout.startswith("tl_")
    (listed,) = json.loads(run(database_url, "token", "list", "--json").stdout)["tokens"]
    assert (listed["name"], listed["role"], listed["valid"]) == ("ci", "producer", True)
    assert made.stdout.strip() not in run(database_url, "token", "list").stdout
    assert run(database_url, "token", "revoke", "ci").returncode == 0
    (revoked,) = json.loads(run(database_url, "token", "list", "--json").stdout)["tokens"]
    assert revoked["valid"] is False
    assert run(database_url, "token", "revoke", "ci").returncode == 1


@pytest.mark.backends("sqlite-file")
def test_revoking_a_name_leaves_no_token_of_it(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    def tasklib(*words: str) -> Any:
        assert main([*words, "--json", "--database-url", database_url]) == 0
        return json.loads(capsys.readouterr().out)

    for role in ("viewer", "admin"):
        tasklib("token", "create", "ci", "--role", role)
    other = tasklib("token", "create", "other")["token"][:9]
    tasklib("token", "create", other)  # named as the other one begins
    assert len(tasklib("token", "revoke", "ci")["revoked"]) == 2
    assert [each["name"] for each in tasklib("token", "revoke", other)["revoked"]] == [other]
    left = [each["name"] for each in tasklib("token", "list")["tokens"] if each["valid"]]
    assert left == ["other"]
    assert [each["name"] for each in tasklib("token", "revoke", other)["revoked"]] == ["other"]
    # Whoever has found one somewhere need not cut it; and what is not known is not written out.
    leaked = tasklib("token", "create", "leaked")["token"]
    assert [each["name"] for each in tasklib("token", "revoke", leaked)["revoked"]] == ["leaked"]
    assert main(["token", "revoke", leaked, "--database-url", database_url]) == 1
    assert leaked not in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["create"], ["explode", "x"], ["create", "x", "--role", "king"], ["create", "x", "--expires", "soon"]]
)
def test_what_is_not_understood_is_said(sqlite_url: str, arguments: list[str]) -> None:
    done = run(sqlite_url, "token", *arguments)

    assert done.returncode == 2
    assert done.stderr.startswith("error: ")


def test_no_answer_waits_for_an_acknowledgement() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
