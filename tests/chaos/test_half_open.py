"""Connections that go silent without being closed."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.chaos.conftest import StartFleet
from tests.chaos.proxy import Proxy
from tests.fixtures.waiting import eventually


@dataclass(frozen=True)
class Size:
    rounds: int


SIZES = [
    pytest.param(Size(rounds=1), id="short"),
    pytest.param(Size(rounds=20), id="long", marks=[pytest.mark.chaos, pytest.mark.timeout(900)]),
]
POLL_SECONDS = 1.0


def through(proxy: Proxy, url: str) -> str:
    """The URL of the same database by way of the proxy."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}"))


@pytest.mark.parametrize("size", SIZES)
def test_a_listen_connection_that_went_silent_costs_at_most_the_poll_interval(
    newest_postgres_url: str, start_fleet: StartFleet, size: Size
):
    with Proxy(urlsplit(newest_postgres_url).port or 0) as proxy:
        fleet, queue = start_fleet(
            through(proxy, newest_postgres_url), history_url=newest_postgres_url, worker_timeout_seconds=30
        )
        fleet.start("--concurrency", "2", "--poll-interval", str(POLL_SECONDS))
        eventually(lambda: queue.wait(queue.enqueue("quick"), timeout=180))

        for _ in range(size.rounds):
            eventually(lambda: proxy.freeze(lambda pair: b"LISTEN" in pair.heard))
            task_id = queue.enqueue("quick")
            eventually(lambda task_id=task_id: fleet.ledger.starts_of(task_id))
        fleet.stop()
