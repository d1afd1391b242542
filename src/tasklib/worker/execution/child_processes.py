"""Attempts in child processes: for tasks that ask for one, and for suspects that may take their process down."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from tasklib.core.lifecycle import Ending
from tasklib.core.outcome import Completion
from tasklib.definition import Definition
from tasklib.errors import ConfigurationError, ProcessNotReady, TaskDefinitionError
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.attempt import Attempt, Ended, StopReason
from tasklib.worker.execution.call import Committed
from tasklib.worker.execution.executor import Source
from tasklib.worker.execution.processes.child import Job
from tasklib.worker.execution.processes.pool import ChildPool
from tasklib.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

log = logging.getLogger("tasklib.worker")


class ChildProcesses:
    """Runs functions in processes of their own, which can always be ended."""

    name = "process"
    stops_surely = True
    shares_process = False

    def __init__(self, queue: TaskQueue, settings: WorkerSettings, worker_id: str) -> None:
        self._pool = ChildPool(queue, settings, worker_id)
        self._jobs: dict[Attempt, Job] = {}

    def check(self, definition: Definition) -> None:
        """Refuse a task that asks for a process and cannot have one, with the reason and a remedy."""
        self._pool.check(definition)

    def accepts(self, definition: Definition, task: ClaimedTask) -> bool:
        """Tasks that ask for a process, and those whose worker vanished before, if they can have one."""
        return self._pool.takes(definition, task)

    def has_room(self, attempt: Attempt) -> bool:
        """Tasks that take next to no time are sent ahead to a child that is busy."""
        return self._pool.has_room(attempt.definition, attempt.task)

    def start(self, source: Source) -> None:
        """Give them to children, one after the other."""
        while (attempt := source.take(self)) is not None:
            source.hold_slot(attempt)
            job = self._jobs[attempt] = _AttemptJob(attempt, source, self)
            self._begin(attempt, job)

    def stop(self, attempt: Attempt, reason: StopReason) -> None:
        """End the process, if the task runs there; recall it from the process, if it waits there."""
        self._jobs[attempt].end()
        attempt.abandon_later()

    async def close(self) -> None:
        """End every child process."""
        await self._pool.close()

    def _begin(self, attempt: Attempt, job: Job) -> None:
        """Find a child for it; one that cannot be had is this task's failure alone."""
        loop = asyncio.get_running_loop()
        attempt.work = loop.create_future()
        try:
            self._pool.start(attempt.definition, job)
        except (TaskDefinitionError, ConfigurationError) as error:
            loop.call_soon(job.over, ProcessNotReady(f"cannot be had: {error}", never=True))
        except Exception as error:  # noqa: BLE001
            loop.call_soon(job.over, error)

    def over(self, attempt: Attempt, result: Any, source: Source) -> None:
        """A process has ended the task, or has ended itself."""
        del self._jobs[attempt]
        is_suspect = attempt.definition.options.isolation != "process"
        if isinstance(result, ProcessNotReady) and is_suspect and attempt.stop_reason is None:
            task = attempt.task
            log.warning("task %s %s will run alone in the worker itself: %s", task.name, task.id, result)
            attempt.is_ended = True
            self._pool.refuse(attempt.definition)
            source.start_elsewhere(attempt)
        else:
            attempt.end(self._ended(attempt, result))
        attempt.work.set_result(None)

    def _ended(self, attempt: Attempt, result: Any) -> Ended:
        if isinstance(result, Committed):
            return result
        if attempt.stop_reason is StopReason.TIMED_OUT:
            return attempt.stopped()
        if isinstance(result, Completion):
            self._pool.took(attempt.task.name, result.ended - result.started)
        if isinstance(result, Completion | Ending):
            return result
        return attempt.raised(result) if isinstance(result, Exception) else attempt.stopped()


class _AttemptJob(Job):
    """An attempt as a job of a child."""

    def __init__(self, attempt: Attempt, source: Source, executor: ChildProcesses) -> None:
        super().__init__(attempt.task, attempt.context)
        self._attempt = attempt
        self._source = source
        self._executor = executor

    def first_in_line(self) -> None:
        self._source.note_running(self._attempt)

    def begun(self) -> None:
        # From here on its time counts.
        self._attempt.begin()
        self._attempt.limit_time()

    def over(self, result: Any) -> None:
        self._executor.over(self._attempt, result, self._source)
