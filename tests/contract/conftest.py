"""Every test here runs on each database, blocking and awaiting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fixtures.queues import FORMS, Face, Form, Instance, open_queue


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Form:
    return request.param


@pytest.fixture
def queue(database_url: str, form: Form) -> Iterator[Face]:
    """A queue whose clock stands at noon until the test moves it."""
    with open_queue(database_url, form) as face:
        yield face


@pytest.fixture
def worker(queue: Face) -> Instance:
    """A worker instance that knows tasks named `job`."""
    return queue.worker()
