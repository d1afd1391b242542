"""Child processes that begin as forks."""

from __future__ import annotations

import pytest

from tests.fixtures import python


@pytest.fixture
def forked_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes that a worker in the test's own process starts are forks, which saves most of what they cost."""
    python.fork_what_workers_start(monkeypatch.setattr)
