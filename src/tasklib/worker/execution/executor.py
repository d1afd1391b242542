"""Where a function runs in the worker's own process: a coroutine on the event loop, a plain function in a thread."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tasklib.core.context import TaskContext
from tasklib.core.own_tasks import own_task
from tasklib.definition import Definition
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.call import Caller
from tasklib.worker.execution.thread_pool import ThreadPool


@dataclass(frozen=True, slots=True)
class Work:
    """A call in progress."""

    place: str
    outcome: asyncio.Future[Any]
    end: Callable[[], object]
    """Ends the call as far as that is possible."""
    ends_surely: bool
    """Whether `end` really ends it, soon."""


class Places:
    """Starts each function where it belongs."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._threads = ThreadPool()

    @staticmethod
    def runs_here(definition: Definition) -> bool:
        """Whether the function is a coroutine that a lane may begin."""
        return definition.is_async and not definition.options.transactional

    def start(self, definition: Definition, task: ClaimedTask, context: TaskContext) -> Work:
        """Begin the call."""
        call = self._caller.prepare(definition, task, context)
        if definition.is_async:
            coroutine = own_task(call())
            return Work("coroutine", coroutine, coroutine.cancel, ends_surely=True)
        copied = contextvars.copy_context()
        outcome = self._threads.run(lambda: copied.run(call))
        return Work("thread", outcome, lambda: None, ends_surely=False)

    def close(self) -> None:
        """Let idle threads end."""
        self._threads.close()
