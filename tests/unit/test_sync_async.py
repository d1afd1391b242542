"""Methods of a queue in both forms: what is wrong with a call is said before a database is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tasklib import ConfigurationError, DatabaseUnavailable, TaskQueue

WRONG: list[Callable[[TaskQueue, str], Any]] = [
    lambda queue, form: getattr(queue, f"{form}set_rate_limit")(-1),
    lambda queue, form: getattr(queue, f"{form}set_concurrency_limit")(1.5),
    lambda queue, form: getattr(queue, f"{form}set_key_limit")(1, key=""),
]


@pytest.fixture
def queue() -> TaskQueue:
    """A queue whose server does not exist."""
    return TaskQueue("postgresql://127.0.0.1:1/none?connect_timeout=1")


@pytest.mark.parametrize("call", WRONG)
def test_wrong_arguments_are_refused_without_a_connection(queue: TaskQueue, call: Callable[..., Any]) -> None:
    with pytest.raises(ConfigurationError):
        call(queue, "")


@pytest.mark.parametrize("call", WRONG)
async def test_wrong_arguments_are_refused_without_a_connection_when_awaiting(
    queue: TaskQueue, call: Callable[..., Any]
) -> None:
    with pytest.raises(ConfigurationError):
        await call(queue, "a")


def test_right_ones_need_one(queue: TaskQueue) -> None:
    with pytest.raises(DatabaseUnavailable):
        queue.set_rate_limit(1)
