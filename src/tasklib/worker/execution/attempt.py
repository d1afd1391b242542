"""One attempt at a task: how long it may take, why it must stop, what it has reported, and how it ended, once.

This is also the interface between a worker and the places where functions run: event loop, threads, child processes,
cluster. A new executor is one file with a subclass of `Executor`, and one line in `Runner.__init__`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol
from uuid import UUID

from tasklib.core.calls.base_exceptions import is_interrupt, uncarried
from tasklib.core.lifecycle import Ending
from tasklib.core.outcome import Completion
from tasklib.core.task import LogLine
from tasklib.core.time.timing import Timer
from tasklib.definition import Definition
from tasklib.errors import ClaimLost, TaskTimeout
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.running_attempt import AttemptEnvironment, Ended, RunningAttempt, StopReason
from tasklib.worker.recording.notes import Notes

UNWIND_SECONDS = 5.0
"""How long work may take to end after it was stopped; then it is abandoned, and a log line says so."""


class AttemptRunner(AttemptEnvironment, Protocol):
    """What executors and attempts call of the worker's `Runner`: executors take attempts from it, attempts report to
    it."""

    notes: Notes

    def has_next(self, executor: Executor) -> bool:
        """Whether an attempt may start in this executor now."""
        ...

    def take(self, executor: Executor) -> Attempt | None:
        """The next attempt that may start in this executor now; None if there is none, or another executor's comes
        first."""
        ...

    def hold_slot(self, attempt: Attempt) -> None:
        """Count an attempt that did not end at once as running: it holds a slot until it ends."""

    def note_running(self, attempt: Attempt) -> None:
        """Note that the task's code is about to run, and may from now on crash the worker's process."""

    def use_free_slots(self) -> None:
        """Start held tasks, because a slot may be free."""

    def resize(self, slots: int) -> None:
        """Let this many attempts run at once from now on."""

    def start_elsewhere(self, attempt: Attempt) -> None:
        """Pass on an attempt that this executor cannot start, to another executor."""

    def completed(self, ends: Sequence[tuple[Attempt, Completion]]) -> None:
        """Record attempts that have succeeded."""

    def ended(self, attempt: Attempt, ended: Ended) -> None:
        """Record how an attempt ended."""

    def abandoned(self, attempt: Attempt) -> None:
        """Count an attempt whose work does not end, and that is no longer waited for."""


class Executor(Protocol):
    """Runs attempts: on the event loop, in threads, in child processes."""

    name: str
    stops_surely: bool
    """Whether `stop` is certain to end the work soon."""
    shares_process: bool
    """Whether a function that crashes takes the worker's process with it: if so, a suspect task runs alone."""

    def accepts(self, definition: Definition, task: ClaimedTask) -> bool:
        """Whether this executor can run the task; the first executor that accepts it gets it."""
        ...

    def has_room(self, attempt: Attempt) -> bool:
        """Whether one more attempt may start although all slots are taken, because its wait would be negligible."""
        return False

    def start(self, runner: AttemptRunner) -> None:
        """Start attempts while the runner has some for this executor, one by one or in a batch."""

    def stop(self, attempt: Attempt, reason: StopReason) -> None:
        """End the work as far as that is possible."""

    async def close(self) -> None:
        """Release the executor's threads, processes or connections."""


class Attempt(RunningAttempt[AttemptRunner]):
    """One attempt: held, running, ended.  Every executor drives it by the same few calls."""

    __slots__ = ("_timer", "executor", "is_ended", "work")

    def __init__(self, runner: AttemptRunner, task: ClaimedTask, definition: Definition, executor: Executor) -> None:
        self.task = task
        self.definition = definition
        self.executor = executor
        self.started = 0.0
        self.stop_reason = None
        self.is_ended = False
        self.work: asyncio.Future[Any] | None = None
        """Done when the work has really ended, which may be after the attempt; None if it ended at once."""
        self._runner = runner
        self._context = None
        self._timer: Timer | None = None
        self.workflow = None

    def begin(self) -> None:
        """Note that its function is about to be called."""
        self.started = self._runner.settings.timing.monotonic()

    def limit_time(self) -> None:
        """Stop it when its timeout has passed since it started."""
        if self._timer is not None:
            self._timer.cancel()
        if self.task.timeout_seconds is not None and self.stop_reason is None:
            timing = self._runner.settings.timing
            left = self.started + self.task.timeout_seconds - timing.monotonic()
            self._timer = timing.call_later(max(0.0, left), self.stop, StopReason.TIMED_OUT)

    def stop(self, reason: StopReason) -> None:
        """End the work as far as that is possible; the first reason counts, except that a person's request replaces
        it."""
        if reason is StopReason.TIMED_OUT and self.stop_reason is not None and self.executor.stops_surely:
            return  # It is ending already.
        if self.stop_reason is None or (
            reason is StopReason.CANCELLED and self.stop_reason is not StopReason.TIMED_OUT
        ):
            self.stop_reason = reason
        self.context.ask_to_end()
        self.executor.stop(self, reason)

    def abandon_later(self) -> None:
        """Abandon the work unless it ends within `UNWIND_SECONDS` of being stopped."""
        self._runner.settings.timing.call_later(UNWIND_SECONDS, self.abandon)

    def abandon(self) -> None:
        """Stop waiting: the end is recorded now, and a later result of the work is refused."""
        if not self.is_ended:
            self._runner.abandoned(self)
            self.end(self.stopped())

    def refuse_late(self) -> None:
        """Raise if a result counts no more, so that the transaction it belongs to is undone."""
        if self.is_ended:
            raise ClaimLost(UUID(self.task.id), self.task.version)
        if self.stop_reason is StopReason.TIMED_OUT:
            raise TaskTimeout(self.task.timeout_seconds or 0)

    def raised(self, error: BaseException) -> Ended:
        """The same; Ctrl-C ends the program, and before it the attempt."""
        interrupt = uncarried(error)
        if is_interrupt(interrupt):
            self.end(self.stopped())
            raise interrupt
        return super().raised(error)

    def settle(self) -> None:
        """Mark it as ended; its executor reports that to the runner together with others."""
        if self._timer is not None:
            self._timer.cancel()
        self.is_ended = True

    def end(self, ended: Ended) -> None:
        """Report to the runner how it ended, once."""
        if self._timer is not None:
            self._timer.cancel()
        if not self.is_ended:
            self.is_ended = True
            if isinstance(ended, Ending):
                ended = replace(ended, progress=self.progress)
            self._runner.ended(self, ended)

    def _report_progress(self, fraction: float, message: str | None) -> None:
        self._runner.notes.note_progress(self.task, fraction, message)

    def _record_line(self, level: str, text: str) -> None:
        elapsed = self._runner.settings.timing.monotonic() - self.started
        self._runner.notes.note_line(self.task, LogLine(self.task.attempts, elapsed, level, text))
