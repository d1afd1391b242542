"""Running one claimed task in a thread: driven by the thread's return, with no asyncio task of its own."""

from __future__ import annotations

import asyncio
from typing import Any

from tasklib.definition import Definition
from tasklib.errors import TaskTimeout
from tasklib.worker.execution.attempt import Ended, Execution
from tasklib.worker.execution.executor import Work
from tasklib.worker.execution.thread_pool import NoMoreThreads


class ThreadAttempt(Execution):
    """One attempt in progress in a thread, which can be asked to end and not be made to."""

    __slots__ = ("_work",)

    _definition: Definition
    _work: Work
    _place = "thread"

    def _start(self) -> None:
        loop = self._runner.loop
        self.ends_surely = False
        self.ending = loop.create_future()
        try:
            self._work = self._runner.places.start(self._definition, self.task, self.context)
        except NoMoreThreads:
            self.released = True  # Not begun, so no attempt is spent.
            loop.call_soon(self._report, self._stopped())
            return
        except BaseException as error:  # noqa: BLE001  the converters of the user's types run here
            # Later, because this attempt is not in hand yet.
            loop.call_soon(self._report, self._raised(error))
            return
        self._work.outcome.add_done_callback(self._over)
        if self.task.timeout_seconds is not None:
            self._timer = loop.call_later(self.task.timeout_seconds, self._overtime_here)

    def _cancel_here(self) -> None:
        """A person who asks for the end waits for it: the task is cancelled only when its work has ended."""
        if self.released or self.fenced:
            self._runner.loop.call_soon(self._leave)

    def _overtime_here(self) -> None:
        self.timed_out = True
        self.context.ask_to_end()
        self._leave()

    def _leave(self) -> None:
        """Wait no longer: what the function returns is too late."""
        if self._reported or self._work.outcome.done():
            return
        self._runner.abandon(self, self._work)
        late = self.timed_out and not self._told_to_stop
        self._report(self._failed(TaskTimeout(self.task.timeout_seconds or 0)) if late else self._stopped())

    def _over(self, outcome: asyncio.Future[Any]) -> None:
        """The function has returned or raised."""
        if not self._reported:
            self._report(self._ended(outcome))

    def _ended(self, outcome: asyncio.Future[Any]) -> Ended:
        try:
            result = outcome.result()
        except BaseException as error:  # noqa: BLE001  whatever the user's function raised
            return self._raised(error)
        return self._returned(result)

    def _report(self, ended: Ended) -> None:
        super()._report(ended)
        if not self.ending.done():
            self.ending.set_result(None)
