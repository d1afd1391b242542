"""Fixtures for pytest, there as soon as tasklib is installed, and a guard of the program's own database.

Little is loaded before a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue
    from tasklib.queue.test_guard import TestGuard
    from tasklib.testing import TestTasks


MARKER = "tasklib_database"
OUTER: pytest.StashKey[TestGuard | None] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`tasklib_database = allow` in pytest's settings lets every test use the program's own database."""
    parser.addini(
        MARKER, "may tests use the database that the program's own queues name: refuse or allow", default="refuse"
    )


def pytest_configure(config: pytest.Config) -> None:
    """From here on, queues of the program under test ask before they use their database."""
    from tasklib.queue import test_guard

    config.addinivalue_line("markers", f"{MARKER}: the test may use the database that the program's own queues name")
    chosen = config.getini(MARKER)
    if chosen not in ("allow", "refuse"):
        raise pytest.UsageError(f"{MARKER} is allow or refuse, got {chosen!r}")
    config.stash[OUTER] = test_guard.guard
    base_temp = config.getoption("basetemp", None)
    test_guard.guard = test_guard.TestGuard(
        config.rootpath, allows_all=chosen == "allow", base_temp=base_temp and Path(base_temp).absolute()
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    """These tests are over; those that ran them, if any, go on."""
    from tasklib.queue import test_guard

    test_guard.guard = config.stash.get(OUTER, None)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Know that a test runs, its fixtures included, and whether it is marked."""
    from tasklib.queue import test_guard

    guard = test_guard.guard
    assert guard is not None, "set when pytest was configured"
    guard.test_runs, guard.test_allows = True, item.get_closest_marker(MARKER) is not None
    yield
    guard.test_runs = guard.test_allows = False


@pytest.fixture
def isolate_queue() -> Iterator[Callable[..., TestTasks]]:
    """`isolate_queue(queue, inline=True)`: the queue works on a database of its own until the test ends."""
    from tasklib.testing import isolated

    with ExitStack() as stack:

        def isolate(queue: TaskQueue | None = None, **options: Any) -> TestTasks:
            return stack.enter_context(isolated(queue, **options))

        yield isolate


@pytest.fixture
def tasklib_tasks(isolate_queue: Callable[..., TestTasks]) -> TestTasks:
    """The default queue, of `tasklib.task` and the module's functions, on a database of its own."""
    return isolate_queue()
