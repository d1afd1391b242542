"""A worker whose network swallows everything: it ends its own work before others run it, and is refused afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from tasklib import TaskQueue
from tests.chaos.conftest import WORKER_TIMEOUT, StartFleet
from tests.chaos.fleet import Service
from tests.chaos.proxy import Proxy
from tests.chaos.test_half_open import through
from tests.fixtures.waiting import eventually

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.alone,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and ip"),
]
ROUNDS = 5


@dataclass(frozen=True)
class Network:
    """A namespace whose only way out can be cut; nothing is told to either side."""

    name: str
    outside: str

    @property
    def within(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        ip("link", "set", f"{self.name}o", "down")

    def heal(self) -> None:
        ip("link", "set", f"{self.name}o", "up")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@pytest.fixture
def network() -> Iterator[Network]:
    number = os.getpid() % 60_000
    name = f"cx{number}"
    subnet = f"10.{200 + number // 16_384 % 50}.{number // 64 % 256}.{number % 64 * 4}"
    outside, inside = (f"{subnet.rpartition('.')[0]}.{int(subnet.rpartition('.')[2]) + host}" for host in (1, 2))
    ip("netns", "add", name)
    try:
        ip("link", "add", f"{name}o", "type", "veth", "peer", "name", f"{name}i", "netns", name)
        ip("addr", "add", f"{outside}/30", "dev", f"{name}o")
        ip("link", "set", f"{name}o", "up")
        ip("-n", name, "addr", "add", f"{inside}/30", "dev", f"{name}i")
        ip("-n", name, "link", "set", f"{name}i", "up")
        ip("-n", name, "link", "set", "lo", "up")
        yield Network(name, outside)
    finally:
        ip("netns", "del", name)


def test_a_worker_that_is_cut_off_ends_its_work_before_others_begin_it(
    newest_postgres_url: str, start_fleet: StartFleet, network: Network
):
    with Proxy(urlsplit(newest_postgres_url).port or 0, network.outside) as proxy:
        fleet, queue = start_fleet(newest_postgres_url)
        url = through(proxy, newest_postgres_url).replace("127.0.0.1", network.outside)
        far: Service = fleet.start("--concurrency", "2", within=network.within, url=url)
        near: Service = fleet.start("--concurrency", "2")
        overlaps = []
        for _ in range(ROUNDS):
            ids = [queue.enqueue("nap", {"seconds": 3 * WORKER_TIMEOUT}) for _ in range(4)]
            eventually(lambda ids=ids: {entry.task_id for entry in fleet.ledger.starts()} >= set(ids))
            held = {entry.task_id for entry in fleet.ledger.starts() if entry.pid in far.workers()} & set(ids)
            network.cut()
            for task_id in ids:
                assert queue.wait(task_id, timeout=120).state == "completed"
            network.heal()
            for task_id in held:
                [first, *rest] = fleet.ledger.starts_of(task_id)
                given_up = [e for e in fleet.ledger.entries() if e.what == "cancel" and e.pid == first.pid]
                overlaps += [again.moment - max(e.moment for e in given_up if e.task_id == task_id) for again in rest]
            eventually(lambda: is_heard(queue, far), 120)

        assert overlaps
        assert min(overlaps) > 0, overlaps
        assert near.process.poll() is None
        assert far.process.poll() is None
        fleet.stop()


def is_heard(queue: TaskQueue, service: Service) -> bool:
    """Whether the database hears the worker process of a service."""
    return any(worker.alive and worker.pid in service.workers() for worker in queue.workers())
