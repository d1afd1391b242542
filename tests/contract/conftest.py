"""Every test here runs on SQLite in memory, blocking, and on the newest PostgreSQL, awaiting.

With `MATRIX=full`, or the marker `full_matrix`, it runs on each of four databases in both forms.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fixtures.backends import is_short
from tests.fixtures.queues import FORMS, Face, Form, Instance, open_queue


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen_by_the_test = any(mark.args[0] == "form" for mark in metafunc.definition.iter_markers("parametrize"))
    if "form" in metafunc.fixturenames and not chosen_by_the_test and not is_short(metafunc):
        metafunc.parametrize("form", FORMS, indirect=True)


@pytest.fixture
def form(request: pytest.FixtureRequest, database_url: str) -> Form:
    """The one that the test or the matrix chose, else one for each kind of database."""
    return getattr(request, "param", "blocking" if database_url.startswith("sqlite") else "awaiting")


@pytest.fixture
def queue(database_url: str, form: Form) -> Iterator[Face]:
    """A queue whose clock stands at noon until the test moves it."""
    with open_queue(database_url, form) as face:
        yield face


@pytest.fixture
def worker(queue: Face) -> Instance:
    """A worker instance that knows tasks named `job`."""
    return queue.worker()
