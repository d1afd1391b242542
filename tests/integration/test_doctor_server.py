"""Faults of a server and of the way to it, on a server of its own where nothing else is wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tasklib import Config
from tasklib.core.lifecycle import Phase
from tasklib.doctor import Fault, Finding, Thresholds, examine
from tests.fixtures.pooler import direct
from tests.fixtures.queues import Face, open_queue
from tests.fixtures.waiting import eventually
from tools.postgres import Server, available, start

DOCS = Path(__file__).parents[2] / "docs"
EVERY_TRANSACTION = Thresholds(transaction_seconds=-1)
CLOCK_AN_HOUR_AHEAD = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    long failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec += 3600;
    return (int)failed;
}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server as in production: what it commits is there after a crash."""
    with start(available()[-1], durable=True) as running:
        yield running


@pytest.fixture
def queue(server: Server) -> Iterator[Face]:
    """A queue in a schema of its own."""
    with open_queue(f"{server.url}?schema=queue_{uuid4().hex}") as face:
        face.migrate()
        yield face


def examined(queue: Face, thresholds: Thresholds | None = None) -> list[Finding]:
    return examine(queue.plain.config, thresholds, clock=queue.plain.clock)


def test_a_healthy_server_has_no_findings(queue: Face) -> None:
    worker = queue.worker()
    queue.enqueue("job")
    worker.complete(worker.take())
    queue.enqueue("job")
    assert examined(queue) == []


@pytest.mark.parametrize("setting", ["fsync", "synchronous_commit"])
def test_a_server_that_is_not_durable(queue: Face, server: Server, setting: str) -> None:
    configure(server, f"ALTER SYSTEM SET {setting} = off")
    (found,) = eventually(lambda: examined(queue))
    assert found.code == "not-durable"
    assert f"{setting} = on" in found.remedy
    configure(server, f"ALTER SYSTEM SET {setting} = on")
    eventually(lambda: examined(queue) == [])


def configure(server: Server, statement: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(statement.encode())
        connection.execute("SELECT pg_reload_conf()")


def test_a_long_transaction(queue: Face, server: Server) -> None:
    with psycopg.connect(server.url) as connection:
        connection.execute("SELECT 1")
        (found,) = examined(queue, EVERY_TRANSACTION)
        assert (found.code, f"pid {connection.info.backend_pid}" in found.text) == ("long-transaction", True)
        queue.sql(found.remedy.removeprefix("end it: "))
        eventually(lambda: examined(queue, EVERY_TRANSACTION) == [])
        connection.close()


@pytest.fixture
def an_hour_ahead(queue: Face, tmp_path: Path) -> Callable[..., Any]:
    """Commands whose clock alone is set forward, below Python: the machine's belongs to everybody on it."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        pytest.skip("needs Linux and a C compiler")
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(CLOCK_AN_HOUR_AHEAD)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    environment = os.environ | {"LD_PRELOAD": str(library)}

    def run(*arguments: str) -> Any:
        command = [sys.executable, "-m", "tasklib", *arguments, "--json", "--database-url", queue.url]
        return json.loads(subprocess.run(command, env=environment, capture_output=True, text=True).stdout)

    return run


def test_a_clock_that_is_wrong(queue: Face, an_hour_ahead: Callable[..., Any]) -> None:
    assert examined(queue) == []
    (found,) = an_hour_ahead("doctor")["findings"]
    assert (found["code"], found["remedy"]) == ("clock-skew", "synchronise both by NTP")
    assert "s ahead of the database's" in found["text"]


def test_a_wrong_clock_removes_nothing_before_its_time(queue: Face, an_hour_ahead: Callable[..., Any]) -> None:
    queue.task_in(Phase.COMPLETED)
    queue.sql("UPDATE tasks SET completed_at = now()")
    assert an_hour_ahead("cleanup", "--older-than", "30min")["count"] == 0
    assert an_hour_ahead("cleanup", "--older-than", "0s")["count"] == 1


def test_a_pooler_in_transaction_mode(newest_postgres_url: str, pooled_url: str) -> None:
    assert found_behind(newest_postgres_url) == {}
    assert set(found_behind(pooled_url)) == {"pooler-listen"}
    found = found_behind(pooled_url, prepare_statements=True)
    assert set(found) == {"pooler-prepared", "pooler-listen"}
    assert "TASKLIB_PREPARE_STATEMENTS=false" in found["pooler-prepared"].remedy
    assert "TASKLIB_LISTEN_URL=" in found["pooler-listen"].remedy
    assert set(found_behind(pooled_url, prepare_statements=False)) == {"pooler-listen"}
    settings = {"prepare_statements": False, "listen_url": direct(pooled_url)}
    assert "and so is listen_url" in found_behind(pooled_url, **settings)["pooler-listen"].text
    assert found_behind(pooled_url, prepare_statements=False, listen_url=direct(newest_postgres_url)) == {}


def found_behind(url: str, **settings: object) -> dict[str, Finding]:
    """What is wrong with the way to the server."""
    config = Config(database_url=url, **settings)  # type: ignore[arg-type]
    with open_queue(url, prepare_statements=False) as queue:
        queue.migrate()
    return {each.code: each for each in examine(config) if each.code.startswith("pooler")}


def test_every_fault_is_explained_in_the_docs() -> None:
    page = (DOCS / "production" / "troubleshooting.md").read_text()
    section = page.partition("## What the doctor finds\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE) == list(Fault)
