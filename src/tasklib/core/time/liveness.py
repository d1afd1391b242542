"""When a worker counts as dead: once its heartbeat was seen unchanged for its whole timeout, not counting outages.

A heartbeat that is too old by the database's clock proves nothing: none arrives while the database is unavailable, and
all of them look old after its clock has stepped.  So an observer looks repeatedly, and measures with its own monotonic
clock how long each heartbeat stays unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LONGEST_GAP = 0.5
"""The part of a subject's patience, or of the observer's own if that is shorter (a lease has more time than a worker,
but an outage is the same for both), that may pass between two looks.  An observer that has not looked for longer, or
has waited that long for the answer, cannot distinguish silence from an outage and starts to observe again."""
SHORTEST_GAP_SECONDS = 0.5
"""A gap that is always allowed, because a busy machine causes such gaps now and then."""
LOOKS = 5
"""How often to look in the shortest patience seen; well within the longest gap."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A worker's heartbeat, or a task's lease, as one look found it."""

    key: str
    """The worker's instance, or the task's id."""
    value: str
    """The heartbeat or the lease as the database writes it; every sign of life changes it."""
    patience: float
    """Seconds of silence after which the subject is declared dead."""
    is_overdue: bool
    """Whether it is overdue by the database's clock."""
    version: int | None = None
    """The version of the task; None for a worker."""


class Watch:
    """Tracks how long each subject has been silent, as far as this observer has seen.

    Moments are passed in, all of one clock that never steps: `time.monotonic()`, or a test's own.
    """

    def __init__(self, own_patience: float) -> None:
        """`own_patience` are the seconds of silence after which the observer itself would be declared dead."""
        self._own_patience = own_patience
        self._silent_since: dict[tuple[str, int | None], tuple[Sighting, float]] = {}
        self._last_look = float("-inf")

    def note(self, seen: Iterable[Sighting], *, asked: float, answered: float) -> list[Sighting]:
        """Take in what a look found; returns the subjects whose silence is proven: overdue, and unchanged for their
        whole patience between the answer to the first look that found them so and the question of this one."""
        gap, self._last_look = answered - self._last_look, answered
        before, self._silent_since = self._silent_since, {}
        proven = []
        for sighting in seen:
            known, since = before.get((sighting.key, sighting.version), (None, answered))
            patience = min(sighting.patience, self._own_patience)
            unbroken = gap <= max(LONGEST_GAP * patience, SHORTEST_GAP_SECONDS)
            if known is None or known.value != sighting.value or not unbroken:
                since = answered
            self._silent_since[sighting.key, sighting.version] = sighting, since
            if sighting.is_overdue and asked - since >= sighting.patience:
                proven.append(sighting)
        return proven

    @property
    def has_leases(self) -> bool:
        """Whether the last look found leases that have passed."""
        return any(version is not None for _, version in self._silent_since)

    def next_look_in(self, moment: float, longest: float) -> float:
        """Seconds until the next look is useful: when somebody's silence may be proven, and often enough to notice
        an outage in between; `longest` at most, and none before the first."""
        waits = [longest if self._last_look > float("-inf") else 0.0]
        for sighting, since in self._silent_since.values():
            waits.append(sighting.patience / LOOKS)
            left = since + sighting.patience - moment
            # Else it was proven, or the database's clock says that it is not overdue: nothing to wait for.
            if left > 0:
                waits.append(left)
        return min(waits)
