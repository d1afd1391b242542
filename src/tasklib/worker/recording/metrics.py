"""What a worker has done, counted in memory until it is added to the database's statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from tasklib.core.histogram import Histogram, bucket_of
from tasklib.core.lifecycle import Ending, Event
from tasklib.core.outcome import Completion
from tasklib.storage.operations.statistics import Done
from tasklib.storage.rows import ClaimedTask

OUTCOMES: Final = {
    Event.RETRY_LATER: "retried",
    Event.GIVE_UP: "failed",
    Event.CANCEL: "cancelled",
    Event.BURY: "buried",
}
"""What an ending counts as; one that spent no attempt counts as nothing."""


class Metrics:
    """Counts endings by name and outcome; a few dictionary entries each."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], tuple[list[int], Histogram, Histogram]] = {}

    def note(self, ends: Iterable[tuple[ClaimedTask, Completion | Ending]]) -> None:
        """Count endings that the database has accepted."""
        for task, ended in ends:
            waited = task.waited if task.attempts == 1 else None
            if isinstance(ended, Completion):
                self.count(task.name, "completed", ended.ended - ended.started, waited)
            elif (outcome := OUTCOMES.get(ended.event)) is not None:
                self.count(task.name, outcome, _seconds(ended), waited)

    def note_committed(self, task: ClaimedTask, seconds: float) -> None:
        """Count a task that was completed in its own transaction after it ran so long."""
        self.count(task.name, "completed", seconds, task.waited if task.attempts == 1 else None)

    def count(self, name: str, outcome: str, ran: float | None, waited: float | None) -> None:
        """Count an ending, with the seconds it ran and, for a first attempt, those it had waited."""
        counted = self._counts.get((name, outcome))
        if counted is None:
            counted = self._counts[name, outcome] = ([0], Counter(), Counter())
        number, waits, runs = counted
        number[0] += 1
        if waited is not None:
            waits[bucket_of(waited)] += 1
        if ran is not None:
            runs[bucket_of(ran)] += 1

    def take(self) -> list[Done]:
        """What was counted since the last time."""
        counts, self._counts = self._counts, {}
        return [Done(name, outcome, n[0], waits, runs) for (name, outcome), (n, waits, runs) in counts.items()]

    def put_back(self, done: Iterable[Done]) -> None:
        """Count again what could not be added."""
        for each in done:
            counted = self._counts.setdefault((each.name, each.outcome), ([0], Counter(), Counter()))
            counted[0][0] += each.count
            counted[1].update(each.waits)
            counted[2].update(each.runs)


def _seconds(ended: Ending) -> float | None:
    return None if ended.started is None or ended.ended is None else ended.ended - ended.started
