"""Counts of a worker's outcomes, held in memory until they are added to the database's statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tasklib.core.insights.histogram import Histogram, bucket_of
from tasklib.core.lifecycle import Ending, Event
from tasklib.core.outcome import Completion
from tasklib.storage.operations.statistics import Done
from tasklib.storage.operations.workflows.marks import HAS_STEPS
from tasklib.storage.rows import ClaimedTask

OUTCOMES: Final = {
    Event.RETRY_LATER: "retried",
    Event.GIVE_UP: "failed",
    Event.CANCEL: "cancelled",
    Event.BURY: "buried",
}
"""The outcome that each event counts as; an event that spends no attempt is not counted."""
STEPS: Final = {"done": "step recorded", "failed": "step failed"}
"""What the steps of workflows count as, by their state; only a supervisor counts them."""


@dataclass(slots=True)
class Counted:
    """What ended in one way, of one name, since the worker began."""

    count: int = 0
    waits: Histogram = field(default_factory=Counter)
    runs: Histogram = field(default_factory=Counter)
    waited: float = 0.0
    """Seconds that first attempts had waited, in all."""
    ran: float = 0.0
    """Seconds that attempts ran, in all."""


Totals: TypeAlias = list[tuple[str, str, int, dict[int, int], dict[int, int], float, float]]
"""Name, outcome, count, waits, runs, seconds waited, seconds run: what a process reports to its supervisor."""


class Metrics:
    """Counts outcomes by task name; a few dictionary entries for each name."""

    def __init__(self) -> None:
        self.counted: dict[tuple[str, str], Counted] = {}
        """Everything since the worker began, by name and outcome."""
        self._steps: Counter[tuple[str, str]] = Counter()
        self._taken: dict[tuple[str, str], Counted] = {}
        """The part already added to the database's statistics."""

    def note(self, ends: Iterable[tuple[ClaimedTask, Completion | Ending]]) -> None:
        """Count endings that the database has accepted."""
        for task, ended in ends:
            waited = _waited(task)
            if isinstance(ended, Completion):
                self.count(task.name, "completed", ended.ended - ended.started, waited)
            elif (outcome := OUTCOMES.get(ended.event)) is not None:
                self.count(task.name, outcome, _seconds(ended), waited)

    def note_committed(self, task: ClaimedTask, seconds: float) -> None:
        """Count a task that was completed in its own transaction after it ran so long."""
        self.count(task.name, "completed", seconds, _waited(task))

    def count(self, name: str, outcome: str, ran: float | None, waited: float | None) -> None:
        """Count an ending, with the seconds it ran and, for a first attempt, those it had waited."""
        counted = self.counted.get((name, outcome))
        if counted is None:
            counted = self.counted[name, outcome] = Counted()
        counted.count += 1
        if waited is not None:
            counted.waits[bucket_of(waited)] += 1
            counted.waited += waited
        if ran is not None:
            counted.runs[bucket_of(ran)] += 1
            counted.ran += ran

    def note_step(self, name: str, state: str) -> None:
        """Count a step of a workflow that was recorded as `done` or `failed`."""
        self._steps[name, STEPS[state]] += 1

    def totals(self) -> Totals:
        """Everything since the worker began, as plain values."""
        ended: Totals = [
            (name, outcome, each.count, dict(each.waits), dict(each.runs), each.waited, each.ran)
            for (name, outcome), each in self.counted.items()
        ]
        return ended + [(name, what, count, {}, {}, 0.0, 0.0) for (name, what), count in self._steps.items()]

    def take(self) -> list[Done]:
        """What was counted since the last time."""
        done: list[Done] = []
        for (name, outcome), counted in self.counted.items():
            taken = self._taken.setdefault((name, outcome), Counted())
            if new := counted.count - taken.count:
                done.append(Done(name, outcome, new, counted.waits - taken.waits, counted.runs - taken.runs))
                taken.count, taken.waits, taken.runs = counted.count, counted.waits.copy(), counted.runs.copy()
        return done

    def put_back(self, done: Iterable[Done]) -> None:
        """Undo `take` for counts that could not be added, so that the next call returns them."""
        for each in done:
            taken = self._taken[each.name, each.outcome]
            taken.count -= each.count
            taken.waits = taken.waits - Counter(each.waits)
            taken.runs = taken.runs - Counter(each.runs)


def _waited(task: ClaimedTask) -> float | None:
    """How long it waited to begin; None for a later attempt, and for a workflow that had begun before it waited."""
    if task.attempts != 1 or task.marks_when_claimed & HAS_STEPS:
        return None
    return task.waited


def _seconds(ended: Ending) -> float | None:
    return None if ended.started is None or ended.ended is None else ended.ended - ended.started
