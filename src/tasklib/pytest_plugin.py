"""Fixtures for pytest, there as soon as tasklib is installed; nothing is loaded before a test asks for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue
    from tasklib.testing import TestTasks


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
