"""Under Patroni the cluster itself promotes: its leader is killed, and through one URL everything goes on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import psutil
import pytest

from tests.chaos.conftest import StartFleet
from tests.chaos.test_failover import RecordProperty, spread
from tests.fixtures.waiting import eventually
from tools.postgres import Installation, account, available
from tools.postgres.starting import free_port

PATRONI, ETCD = shutil.which("patroni"), shutil.which("etcd")
# The oldest: a Patroni does not know versions that are younger than itself.
COMPLETE = [
    found
    for found in reversed(available())
    if os.access(found.bindir / "pg_rewind", os.X_OK) and account.can_enter(found.bindir)
]
ROUNDS = 3
TTL = 20
"""Seconds without the leader's word after which another is chosen: the least that Patroni accepts."""

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not (PATRONI and ETCD and COMPLETE), reason="needs patroni, etcd and a whole PostgreSQL"),
]


class Node:
    """One Patroni with its PostgreSQL."""

    def __init__(self, name: str, folder: Path, etcd: int, installation: Installation) -> None:
        self.port, self.api = free_port(), free_port()
        self._folder = folder
        self._settings = folder / f"{name}.json"
        self._settings.write_text(json.dumps(self._configuration(name, etcd, installation)))
        self._log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self._log, "ab") as log:
            self.process = account.popen([PATRONI or "", str(self._settings)], self._folder, log)

    def kill(self) -> None:
        """Everything at once, as if the machine were gone."""
        if self.process is None:
            return
        processes: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            top = psutil.Process(self.process.pid)
            processes = [top, *top.children(recursive=True)]
        processes += [each for each in psutil.process_iter(["cmdline"]) if self._is_server(each)]
        for each in processes:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self.process.wait(180)
        self.process = None

    def is_leader(self) -> bool:
        return self._ask("/primary") is not None

    def has_synchronous_standby(self) -> bool:
        members = (self._ask("/cluster") or {}).get("members", [])
        return any(
            member["role"] == "sync_standby" and member["state"] in ("running", "streaming") for member in members
        )

    def _ask(self, path: str) -> dict[str, Any] | None:
        """What it answers; None if it does not, or says no."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.api}{path}", timeout=5) as answer:
                found: dict[str, Any] = json.loads(answer.read())
                return found
        except (OSError, urllib.error.URLError):
            return None

    def _is_server(self, process: psutil.Process) -> bool:
        return str(self._folder / f"data-{self.port}") in (process.info["cmdline"] or [])

    def _configuration(self, name: str, etcd: int, installation: Installation) -> dict[str, Any]:
        local = "127.0.0.1"
        return {
            "scope": "tasklib",
            "name": name,
            "restapi": {"listen": f"{local}:{self.api}", "connect_address": f"{local}:{self.api}"},
            "etcd3": {"host": f"{local}:{etcd}"},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL,
                    "loop_wait": 1,
                    "retry_timeout": 3,
                    "synchronous_mode": True,
                    "postgresql": {"use_pg_rewind": True, "parameters": {"max_connections": 200}},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}],
            },
            "postgresql": {
                "listen": f"{local}:{self.port}",
                "connect_address": f"{local}:{self.port}",
                "data_dir": str(self._folder / f"data-{self.port}"),
                "bin_dir": str(installation.bindir),
                "authentication": {role: {"username": "postgres"} for role in ("superuser", "replication", "rewind")},
                "pgpass": str(self._folder / f"pgpass-{self.port}"),
                "parameters": {"unix_socket_directories": str(self._folder)},
                "pg_hba": [
                    "local all all trust",
                    "host all all 127.0.0.1/32 trust",
                    "host replication all 127.0.0.1/32 trust",
                ],
            },
        }


class Cluster:
    """Two nodes and the etcd they agree by."""

    def __init__(self, folder: Path, installation: Installation) -> None:
        client, peer = free_port(), free_port()
        with open(folder / "etcd.log", "wb") as log:
            self._etcd = account.popen(etcd_command(folder, client, peer), folder, log)
        self.nodes = [Node(name, folder, client, installation) for name in ("one", "two")]

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.start()
                # The first makes the data, of which the other takes a copy.
                eventually(lambda: self.leader() is not None, 120)
            self.wait_in_step()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.kill()
        self._etcd.kill()
        self._etcd.wait()

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"

    def leader(self) -> Node | None:
        return next((node for node in self.nodes if node.is_leader()), None)

    def wait_in_step(self) -> None:
        """Return when a standby has every commit before it is acknowledged."""
        eventually(lambda: (leader := self.leader()) is not None and leader.has_synchronous_standby(), 180)


def etcd_command(folder: Path, client: int, peer: int) -> list[str]:
    ours, others = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    options = {
        "data-dir": str(folder / "etcd"),
        "listen-client-urls": ours,
        "advertise-client-urls": ours,
        "listen-peer-urls": others,
        "initial-advertise-peer-urls": others,
        "initial-cluster": f"default={others}",
    }
    return [ETCD or "", *(f"--{name}={value}" for name, value in options.items())]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with ExitStack() as stack:
        folder = account.make_directory(None)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield stack.enter_context(Cluster(folder, COMPLETE[0]))


def test_a_leader_that_is_killed_is_replaced_and_nothing_acknowledged_is_lost(
    cluster: Cluster, start_fleet: StartFleet, record_property: RecordProperty
):
    fleet, queue = start_fleet(cluster.url, base_retry_delay_seconds=1.0)
    service = fleet.start("--concurrency", "8", processes=2)
    producer = fleet.produce(queue, 1_000_000, backlog=200)
    resumed: list[float] = []
    for _ in range(ROUNDS):
        seen = fleet.ledger.count()
        eventually(lambda seen=seen: fleet.ledger.count() > seen + 200)
        leader = cluster.leader()
        assert leader is not None
        leader.kill()
        gone = time.monotonic()
        eventually(lambda leader=leader: cluster.leader() not in (None, leader), 120)
        had, seen = len(producer.acknowledged), fleet.ledger.count()
        eventually(lambda seen=seen: fleet.ledger.count() > seen, 120)
        resumed.append(time.monotonic() - gone)
        eventually(lambda had=had: len(producer.acknowledged) > had, 120)
        leader.start()
        cluster.wait_in_step()
    producer.stop()
    eventually(lambda: queue.count(state=["pending", "running", "retrying"]) == 0)

    record_property("figures", spread("leaders killed", resumed))
    assert set(producer.acknowledged) <= set(fleet.history.completions())
    assert queue.count() == queue.count(state="completed"), queue.stats()
    assert service.process.poll() is None
    fleet.stop()
