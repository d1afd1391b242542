"""The first message to a child process: how to find the same environment as in its worker's process."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

from tasklib.errors import NotInitialized
from tasklib.worker.execution.processes.import_path import surroundings
from tasklib.worker.execution.processes.log_forwarding import levels_here
from tasklib.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue


class Introduction:
    """Introduces the worker's program to each of its child processes, here or on a machine of a cluster."""

    def __init__(self, queue: TaskQueue, settings: WorkerSettings, worker_id: str) -> None:
        self._queue = queue
        self._settings = settings
        self._worker_id = worker_id
        self._folder = _current_folder()

    def message(self, memory_limit_mb: int | None = None) -> dict[str, Any]:
        """The first message to a child, in JSON."""
        return {
            **surroundings(self._queue, self._settings.modules),
            "folder": self._folder,
            "config": dataclasses.asdict(self._queue.config),
            "is_default": _is_default(self._queue) and not is_in_memory(self._queue),
            "worker_id": self._worker_id,
            "memory_limit_mb": memory_limit_mb,
            "log_levels": levels_here(),
        }


def is_in_memory(queue: TaskQueue) -> bool:
    """Whether the queue's database is in this process's memory, where no other process reaches it."""
    return queue.config.is_sqlite and getattr(queue.database, "path", None) is None


def _is_default(queue: TaskQueue) -> bool:
    from tasklib.queue.default import default_queue

    try:
        return default_queue().registry is queue.registry
    except NotInitialized:
        return False


def _current_folder() -> str | None:
    """The folder in which the worker starts.  Children start there too, even if a task has called `os.chdir` since: the
    program that they import may name its database or other files relative to it."""
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed
        return None
