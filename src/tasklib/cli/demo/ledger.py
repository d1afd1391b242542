"""The demo's ledger: the expected and the real outcome of every task, and whether they agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from tasklib.core.lifecycle import LIVE, TERMINAL, Phase, phase_of
from tasklib.core.task import Task, TaskState


class Ledger:
    """Independent of the queue, so that it can check the queue."""

    def __init__(self) -> None:
        self.expected: dict[UUID, TaskState] = {}
        self.duplicates = 0
        self.returns: Counter[UUID] = Counter()
        """How often each task's function returned."""
        self.seconds = 0.0
        self.changes = 0
        """How often something was changed by hand meanwhile."""
        self.found: Counter[str] = Counter()
        self.retried = 0
        self.lost: list[UUID] = []
        self.wrong: list[str] = []

    def submitted(self, task_id: UUID, ending: TaskState, *, created: bool) -> None:
        """Note the expected outcome of a submitted task; one whose unique key was in use is only counted."""
        if created:
            self.expected[task_id] = ending
        else:
            self.duplicates += 1

    def close(self, tasks: Iterable[Task]) -> None:
        """Compare with what the database says of the tasks."""
        missing = set(self.expected)
        for task in tasks:
            missing.discard(task.id)
            self._compare(task)
        self.lost = sorted(missing)

    def _compare(self, task: Task) -> None:
        phase = phase_of(task)
        self.found["waiting" if phase in LIVE else str(phase)] += 1
        self.retried += phase is Phase.COMPLETED and task.attempts > 1
        wanted = self.expected.get(task.id)
        returned = self.returns[task.id]
        if wanted is None:
            self.wrong.append(f"{task.name} {task.id} was never submitted")
        elif phase is Phase.RUNNING:
            self.wrong.append(f"{task.name} {task.id} is still running")
        elif phase in TERMINAL and task.state is not wanted:
            self.wrong.append(f"{task.name} {task.id} should be {wanted} but is {task.state}")
        elif returned != (phase is Phase.COMPLETED):
            self.wrong.append(f"{task.name} {task.id} is {phase} but its function returned {returned} times")

    @property
    def balanced(self) -> bool:
        """Whether every task is there, has its expected outcome, and none returned twice."""
        return bool(self.expected) and not self.lost and not self.wrong and self.found.total() == len(self.expected)

    def summary(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "seconds": round(self.seconds, 1),
            "submitted": len(self.expected),
            "duplicates": self.duplicates,
            "completed": self.found["completed"],
            "retried": self.retried,
            "failed": self.found["failed"],
            "cancelled": self.found["cancelled"],
            "waiting": self.found["waiting"],
            "lost": len(self.lost),
            "wrong": self.wrong,
            "changes": self.changes,
            "balanced": self.balanced,
        }
