"""Every test here that has a database is judged by its history when it ends, and may start fleets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tasklib import Config, TaskQueue
from tests.chaos.fleet import Fleet
from tests.chaos.history import History
from tests.chaos.judging import Watch
from tests.chaos.judging import pytest_runtest_makereport as pytest_runtest_makereport
from tests.chaos.judging import watch as watch
from tests.chaos.ledger import LEDGER, Ledger

WORKER_TIMEOUT = 2.0
DATABASES = ("database_url", "newest_postgres_url", "sqlite_url")
StartFleet = Callable[..., tuple[Fleet, TaskQueue]]


@pytest.fixture(autouse=True)
def history(request: pytest.FixtureRequest) -> History | None:
    """What happens in the database of a test that starts no fleet, which would bring its own."""
    if "start_fleet" in request.fixturenames:
        return None
    for name in DATABASES:
        if name in request.fixturenames:
            url: str = request.getfixturevalue(name)
            with TaskQueue(url) as queue:
                queue.migrate()
            watch: Watch = request.getfixturevalue("watch")
            return watch(url, None)
    return None


@pytest.fixture
def ledger(history: History | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies of the test note what they see, each time and in whatever process, and are judged by that too."""
    assert history is not None
    history.ledger = Ledger(tmp_path / "ledger")
    monkeypatch.setenv(LEDGER, str(history.ledger.path))


@pytest.fixture
def start_fleet(tmp_path: Path, watch: Watch) -> Iterator[StartFleet]:
    """Makes a fleet and a queue on the same database, both ended with the test; then what has happened is judged.

    `history_url` is the database's own address, where the fleet is given that of a proxy.
    """
    with ExitStack() as stack:

        def make(url: str, *, history_url: str | None = None, **settings: Any) -> tuple[Fleet, TaskQueue]:
            # Retries come soon: how long they wait is tested elsewhere.
            chosen = {"worker_timeout_seconds": WORKER_TIMEOUT, "base_retry_delay_seconds": 0.05} | settings
            queue = stack.enter_context(TaskQueue(Config(database_url=url, **chosen)))
            queue.count()
            history = watch(history_url or url, Ledger(tmp_path / "ledger"))
            return stack.enter_context(Fleet(url, tmp_path, history, **chosen)), queue

        yield make
