"""Where functions run: the seam between a worker and its event loop, threads, child processes, or a cluster.

A new executor is one file with such a class, and one line in `Runner.__init__`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tasklib.core.outcome import Completion
from tasklib.definition import Definition
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.attempt import Attempt, Stopper


class Source(Protocol):
    """Where an executor takes attempts from, and reports to: the worker's Runner."""

    def take(self, executor: Executor) -> Attempt | None:
        """The next attempt that may begin there now; None when there is none, or something else comes first."""
        ...

    def hold_slot(self, attempt: Attempt) -> None:
        """It has not ended at once: it holds a slot until it does."""

    def note_running(self, attempt: Attempt) -> None:
        """From here on it may take the worker's process down."""

    def completed(self, ends: Sequence[tuple[Attempt, Completion]]) -> None:
        """These have ended at once, in success."""

    def use_free_slots(self) -> None:
        """Something else may begin now."""

    def start_elsewhere(self, attempt: Attempt) -> None:
        """It cannot begin in this executor, and must find another."""


class Executor(Stopper, Protocol):
    """Runs attempts: on the event loop, in threads, in child processes."""

    shares_process: bool
    """Whether a function that crashes there takes the worker down: then a suspect runs with nothing beside it."""

    def accepts(self, definition: Definition, task: ClaimedTask) -> bool:
        """Whether the task runs here; of all executors the first that accepts it gets it."""
        ...

    def has_room(self, attempt: Attempt) -> bool:
        """Whether one more may start beyond those that run at once, because it will wait for next to no time."""
        ...

    def start(self, source: Source) -> None:
        """Begin attempts while the source has some for it: one by one, or many in a batch."""

    async def close(self) -> None:
        """End what the executor keeps ready."""
