"""Running one claimed task in a child process: driven by what that process says, with no asyncio task of its own."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from tasklib.core.lifecycle import Ending
from tasklib.core.outcome import Completion
from tasklib.definition import Definition
from tasklib.errors import ConfigurationError, ProcessNotReady, TaskDefinitionError, TaskTimeout
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.attempt import UNWIND_SECONDS, Ended, Execution, Runner, log
from tasklib.worker.execution.call import COMMITTED
from tasklib.worker.processes.child import Job
from tasklib.worker.processes.pool import ChildPool


class ProcessAttempt(Execution):
    """One attempt in progress in a child process, which can always be ended."""

    __slots__ = ("_again", "_job", "_note_running", "_processes")

    _definition: Definition

    _place = "process"

    def __init__(
        self,
        runner: Runner,
        task: ClaimedTask,
        definition: Definition,
        processes: ChildPool,
        again: Callable[[ClaimedTask], None],
        note_running: Callable[[ClaimedTask], None],
    ) -> None:
        self._processes = processes
        self._note_running = note_running
        self._again = again
        super().__init__(runner, task, definition)

    def _start(self) -> None:
        loop = self._runner.loop
        self.ending = loop.create_future()
        turn = functools.partial(self._note_running, self.task)
        job = self._job = Job(self.task, self.context, turn=turn, begun=self._begun, over=self._over)
        try:
            self._processes.start(self._definition, job)
        except (TaskDefinitionError, ConfigurationError) as error:
            # Later, because this attempt is not in hand yet.
            loop.call_soon(self._over, ProcessNotReady(f"cannot be had: {error}", never=True))
        except Exception as error:  # noqa: BLE001  a process that cannot be had is this task's failure alone
            loop.call_soon(self._over, error)

    def _begun(self) -> None:
        """The function is called now: from here on its time counts."""
        self.started = time.monotonic()
        if self.task.timeout_seconds is not None and not self._told_to_stop:
            self._timer = self._runner.loop.call_later(self.task.timeout_seconds, self._overtime_here)

    def _cancel_here(self) -> None:
        self._job.end()
        self._runner.loop.call_later(UNWIND_SECONDS, self._abandon_here)

    def _over(self, result: Any) -> None:
        """The process has ended the task, or has ended itself."""
        if isinstance(result, ProcessNotReady) and self._is_suspect and not self._told_to_stop:
            self._run_elsewhere(result)
        else:
            self._report(self._ended(result))
        self.ending.set_result(None)

    @property
    def _is_suspect(self) -> bool:
        return self._definition.options.isolation != "process"

    def _run_elsewhere(self, error: ProcessNotReady) -> None:
        """No process of its own can load it: it runs in the worker's, with nothing else beside it."""
        log.warning("task %s %s will run alone in the worker itself: %s", self.task.name, self.task.id, error)
        self._reported = True
        self._processes.refuse(self._definition)
        self._again(self.task)

    def _ended(self, result: Any) -> Ended:
        if result is COMMITTED:
            self.committed = True
            return None
        if self.timed_out:
            return self._failed(TaskTimeout(self.task.timeout_seconds or 0))
        if isinstance(result, Completion):
            self._processes.took(self.task.name, result.ended - result.started)
        if isinstance(result, Completion | Ending):
            return result
        if isinstance(result, Exception) and not self._told_to_stop:
            return self._failed(result)
        return self._stopped()
