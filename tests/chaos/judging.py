"""Fixtures that judge a fault run when its test ends, and keep the history of one that went wrong."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.chaos.history import History
from tests.chaos.ledger import Ledger

KEPT = Path(__file__).parents[2] / ".chaos"
"""Where the histories of failed runs are kept."""
FAILED = pytest.StashKey[bool]()
Watch = Callable[[str, Ledger | None], History]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let fixtures know whether their test has failed."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture
def watch(request: pytest.FixtureRequest) -> Iterator[Watch]:
    """Writes down what happens in a database, whose tables are there, from now on; when the test ends, it is judged.

    Without a ledger nothing is known of what bodies saw, and the rows alone are judged.
    """
    histories: list[History] = []

    def begin(url: str, ledger: Ledger | None) -> History:
        history = History(url, ledger)
        history.record()
        histories.append(history)
        return history

    yield begin
    violations = [found for history in histories if history.is_judged for found in _judge(history, request.node)]
    assert not violations, f"see {KEPT / request.node.name}\n" + "\n".join(violations[:20])


def _judge(history: History, test: pytest.Item) -> list[str]:
    """What was broken in a run; its history is kept if anything was, or if its test has failed."""
    verdict = history.judge()
    test.user_properties.append(("history", str(verdict)))
    if verdict.violations or test.stash.get(FAILED, False):
        history.keep(verdict, KEPT / test.name)
    return verdict.violations
