"""Work that did not end when it was stopped: a thread in native code, a coroutine that swallows its cancellation."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from tasklib.worker.execution.attempt import Attempt

log = logging.getLogger("tasklib.worker")


class StuckWork:
    """Counts abandoned work until it ends."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._outcomes: set[asyncio.Future[Any]] = set()

    def __len__(self) -> int:
        return len(self._outcomes)

    @property
    def is_too_much(self) -> bool:
        """Whether the worker should rather start anew."""
        return len(self) >= self._limit

    def add(self, attempt: Attempt) -> None:
        """Log that this work does not end, and count it until it does."""
        log.error(
            "task %s %s does not end; its %s is abandoned and its late result will be refused",
            attempt.task.name,
            attempt.task.id,
            attempt.executor.name,
            extra={"task_id": attempt.task.id, "task_name": attempt.task.name},
        )
        self._outcomes.add(attempt.work)
        attempt.work.add_done_callback(self._returned)

    def _returned(self, outcome: asyncio.Future[Any]) -> None:
        self._outcomes.discard(outcome)
        if not outcome.cancelled():
            outcome.exception()  # Looked at, so that asyncio does not complain that nobody did.
