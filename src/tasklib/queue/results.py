"""Waiting for the value that a task returns, by its id."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tasklib.core.task import Task, TaskState
from tasklib.definition import Registry
from tasklib.errors import TaskFailed
from tasklib.queue.base import QueueBase
from tasklib.queue.sync_async import require_asyncio
from tasklib.queue.wait_for_end import wait_async, wait_blocking


class TaskResults:
    """Waits for results of one queue's tasks; every id that the queue makes refers to it."""

    def __init__(self, queue: QueueBase) -> None:
        self._queue = queue

    def wait_for_result(self, task_id: UUID, timeout: float | None) -> Any:
        """The value, once the task has completed; WaitTimeout or TaskFailed if it does not."""
        queue = self._queue
        return result_of(wait_blocking(queue, task_id, timeout), queue.registry)

    async def await_result(self, task_id: UUID, timeout: float | None) -> Any:
        """The awaiting form of `wait_for_result`."""
        require_asyncio()
        queue = self._queue
        return result_of(await wait_async(queue, task_id, timeout), queue.registry)


def result_of(task: Task, known: Registry) -> Any:
    """What a completed task returned, in its function's return type if that is known; TaskFailed for other endings."""
    if task.state is not TaskState.COMPLETED:
        raise TaskFailed(task)
    value = None if task.result is None else task.result.get("value")
    definition = known.get(task.name)
    return value if definition is None else definition.read_result(value)
