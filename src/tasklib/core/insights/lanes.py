"""Lanes: which attempts ran where and when, one by one or added up by steps of time.  Pure."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID


@dataclass(frozen=True, slots=True)
class LaneAttempt:
    """One attempt in its lane; moments are seconds since 1970, cut to the time that was asked for."""

    id: UUID
    name: str
    lane: str
    outcome: str
    """`completed`, `running`, or as its history says: `failed`, `lost` …"""
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class LaneSum:
    """Attempts of one lane and name that began in one step and ended in one."""

    lane: str
    name: str
    first: int
    last: int
    count: int
    began: float
    """Seconds after the start of the first step, of all together."""
    ended: float
    """Seconds after the start of the last step, of all together."""
    failed: int
    lost: int


@dataclass(slots=True)
class Cell:
    """What one lane did of one name in one step."""

    seconds: float = 0.0
    """For how long slots were busy, of all attempts together."""
    ended: int = 0
    failed: int = 0
    lost: int = 0


@dataclass(slots=True)
class Lane:
    """What ran in one lane: either its attempts are known one by one, or its cells."""

    name: str
    slots: int = 1
    """How many ran at once at most, or may."""
    seconds: float = 0.0
    count: int = 0
    failed: int = 0
    lost: int = 0
    attempts: list[tuple[int, LaneAttempt]] = field(default_factory=list[tuple[int, LaneAttempt]])
    """The slot of each, and the attempt, in the order in which they began."""
    cells: dict[tuple[int, str], Cell] = field(default_factory=lambda: defaultdict[tuple[int, str], Cell](Cell))
    """By step and name."""


FINE = frozenset({"completed", "running", "cancelled", "parked"})


def lanes_of(attempts: Iterable[LaneAttempt], slots_by_lane: Mapping[str, int] | None = None) -> list[Lane]:
    """Lanes with every attempt in a slot of its own for as long as it ran, the busiest first.

    A lane whose slots are known has no more than those, even where an end was recorded a moment late.
    """
    known = slots_by_lane or {}
    found: dict[str, Lane] = {}
    for each in sorted(attempts, key=lambda one: (one.began, one.ended, str(one.id))):
        lane = found.setdefault(each.lane, Lane(each.lane))
        lane.attempts.append((0, each))
        lane.seconds += each.ended - each.began
        lane.count += 1
        lane.lost += each.outcome == "lost"
        lane.failed += each.outcome not in FINE and each.outcome != "lost"
    for lane in found.values():
        slots = list(slots_of([each for _, each in lane.attempts], known.get(lane.name)))
        lane.attempts = list(zip(slots, (each for _, each in lane.attempts), strict=True))
        lane.slots = known.get(lane.name, max(slots) + 1)
    return _ranked(found.values())


def slots_of(attempts: Sequence[LaneAttempt], most: int | None = None) -> Iterator[int]:
    """The lowest slot that is free when each begins, or of `most` the one that is free next.

    They come in the order in which they began.
    """
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    used = 0
    for each in attempts:
        while busy and busy[0][0] <= each.began:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            slot = heapq.heappop(free)
        elif used == most:
            slot = heapq.heappop(busy)[1]
        else:
            slot, used = used, used + 1
        heapq.heappush(busy, (each.ended, slot))
        yield slot


class LaneSums:
    """Adds up attempts to lanes, however many there are."""

    def __init__(self, step: float, steps: int) -> None:
        self._step, self._steps = step, steps
        self._lanes: dict[str, Lane] = {}

    def add(self, each: LaneSum) -> None:
        """Add some attempts of one lane to every step in which they ran."""
        lane = self._lanes.setdefault(each.lane, Lane(each.lane))
        # What ends at the very end of the time would be in a step after the last.
        last = min(each.last, self._steps - 1)
        ended = each.ended + (each.last - last) * self._step * each.count
        first = min(each.first, last)
        began = each.began + (each.first - first) * self._step * each.count
        for step in range(first, last + 1):
            seconds = self._step * each.count
            seconds -= began if step == first else 0
            seconds -= self._step * each.count - ended if step == last else 0
            lane.cells[step, each.name].seconds += seconds
            lane.seconds += seconds
        cell = lane.cells[last, each.name]
        cell.ended += each.count
        cell.failed += each.failed
        cell.lost += each.lost
        lane.count += each.count
        lane.failed += each.failed
        lane.lost += each.lost

    @property
    def count(self) -> int:
        """How many attempts were added."""
        return sum(lane.count for lane in self._lanes.values())

    def lanes(self) -> list[Lane]:
        """The lanes, the busiest first; each is as many slots high as were busy on average in its busiest step."""
        for lane in self._lanes.values():
            busy: defaultdict[int, float] = defaultdict(float)
            for (step, _), cell in lane.cells.items():
                busy[step] += cell.seconds
            lane.slots = max(1, round(max(busy.values()) / self._step + 0.499))
        return _ranked(self._lanes.values())


def _ranked(lanes: Iterable[Lane]) -> list[Lane]:
    return sorted(lanes, key=lambda lane: (-lane.seconds, lane.name))
