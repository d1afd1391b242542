"""Fleets for every test here; each one's history is judged when the test ends."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tasklib import Config, TaskQueue
from tests.chaos.fleet import ROOT, Fleet

WORKER_TIMEOUT = 2.0
KEPT = ROOT / ".chaos"
"""Where the histories of failed runs are kept."""
FAILED = pytest.StashKey[bool]()
StartFleet = Callable[..., tuple[Fleet, TaskQueue]]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let fixtures know whether their test has failed."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture
def start_fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StartFleet]:
    """Makes a fleet and a queue on the same database, both ended with the test; then what has happened is judged.

    `history_url` is the database's own address, where the fleet is given that of a proxy.
    """
    fleets: list[Fleet] = []
    with ExitStack() as stack:

        def make(url: str, *, history_url: str | None = None, **settings: Any) -> tuple[Fleet, TaskQueue]:
            # Retries come soon: how long they wait is tested elsewhere.
            chosen = {"worker_timeout_seconds": WORKER_TIMEOUT, "base_retry_delay_seconds": 0.05} | settings
            queue = stack.enter_context(TaskQueue(Config(database_url=url, **chosen)))
            queue.count()
            fleet = stack.enter_context(Fleet(url, tmp_path, history_url=history_url, **chosen))
            fleet.history.record()
            fleets.append(fleet)
            return fleet, queue

        yield make
    violations = [found for fleet in fleets if fleet.history.is_judged for found in _judge(fleet, request.node)]
    assert not violations, f"see {KEPT / request.node.name}\n" + "\n".join(violations[:20])


def _judge(fleet: Fleet, test: pytest.Item) -> list[str]:
    """What was broken in the run of a fleet; its history is kept if anything was, or if its test has failed."""
    verdict = fleet.history.judge()
    test.user_properties.append(("history", str(verdict)))
    if verdict.violations or test.stash.get(FAILED, False):
        folder = KEPT / test.name
        verdict.write(folder, fleet.ledger.entries())
        for service in fleet.services:
            shutil.copy(service.log_path, folder)
    return verdict.violations
