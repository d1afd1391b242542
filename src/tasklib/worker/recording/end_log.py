"""The log lines of each attempt: its start and its success at DEBUG, its failure always."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tasklib.core.lifecycle import Ending, Event
from tasklib.core.outcome import Completion
from tasklib.core.texts.error_text import summary
from tasklib.core.texts.signal_text import without_values
from tasklib.storage.rows import ClaimedTask

log = logging.getLogger("tasklib.worker")


class EndLog:
    """Writes one line for an attempt: `task send_email 0190… failed in 0.2 s (attempt 1), …`."""

    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id

    def started(self, task: ClaimedTask) -> None:
        """Log that an attempt starts; called only if DEBUG is enabled, because there are so many."""
        self._write(logging.DEBUG, task, "started")

    def succeeded(self, ends: Iterable[tuple[ClaimedTask, Completion]]) -> None:
        """Log attempts that have succeeded, at DEBUG, because it costs time for every task."""
        if log.isEnabledFor(logging.DEBUG):
            for task, done in ends:
                self._write(logging.DEBUG, task, f"completed{_took(done.started, done.ended)}")

    def committed(self, task: ClaimedTask) -> None:
        """Log an attempt whose own transaction was committed, or refused because the claim was lost."""
        self._write(logging.DEBUG, task, "has ended with its transaction")

    def ended(self, task: ClaimedTask, ending: Ending) -> None:
        """Log an attempt that ended in any other way."""
        # The error was redacted when the attempt ended, before it was shortened.
        reason = without_values(summary(ending.error)) if ending.error else ""
        level = logging.INFO if ending.error is None else logging.WARNING
        took, delay = _took(ending.started, ending.ended), ending.delay or 0.0
        words = _WORDS[ending.event].format(took=took, delay=delay, waits_for=ending.waits_for)
        self._write(level, task, f"{words}: {reason}" if reason else words)

    def _write(self, level: int, task: ClaimedTask, words: str) -> None:
        log.log(
            level,
            "task %s %s, attempt %d: %s",
            task.name,
            task.id,
            task.attempts,
            words,
            extra={"task_id": task.id, "task_name": task.name, "attempt": task.attempts, "worker_id": self._worker_id},
        )


_WORDS = {
    Event.RETRY_LATER: "failed{took}, will be retried in {delay:.3g} s",
    Event.GIVE_UP: "failed{took} for good",
    Event.BURY: "killed its process and is buried",
    Event.SNOOZE: "snoozed for {delay:.3g} s",
    Event.SUSPEND: "waits{took}, for {waits_for}",
    Event.RESTART: "restarts{took}",
    Event.RELEASE: "was released, to run elsewhere",
    Event.CANCEL: "was cancelled{took}",
}


def _took(started: float | None, ended: float | None) -> str:
    return "" if started is None or ended is None else f" after {ended - started:.3f} s"
