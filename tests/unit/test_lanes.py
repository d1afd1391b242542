"""Lanes: slots of attempts, and attempts added up by steps of time."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasklib.core.insights.lanes import LaneAttempt, LaneSum, LaneSums, lanes_of


def attempt(n: int, began: float, ended: float, *, lane: str = "w", outcome: str = "completed") -> LaneAttempt:
    return LaneAttempt(UUID(int=n), "job", lane, outcome, began, ended)


def test_an_attempt_takes_the_lowest_slot_that_is_free() -> None:
    (lane,) = lanes_of([attempt(1, 0, 10), attempt(2, 1, 3), attempt(3, 3, 4), attempt(4, 3.5, 5)])
    assert [(slot, each.id.int) for slot, each in lane.attempts] == [(0, 1), (1, 2), (1, 3), (2, 4)]
    assert (lane.slots, lane.count, lane.seconds) == (3, 4, 10 + 2 + 1 + 1.5)


def test_a_lane_has_no_more_slots_than_its_worker_even_if_an_end_was_recorded_late() -> None:
    late = [attempt(1, 0, 5), attempt(2, 0, 3.2), attempt(3, 3, 4)]
    (lane,) = lanes_of(late, {"w": 2})
    assert ([slot for slot, _ in lane.attempts], lane.slots) == ([0, 1, 0], 2)


def test_lanes_say_what_failed_and_what_was_lost() -> None:
    busy, other = lanes_of(
        [
            attempt(1, 0, 1, lane="b", outcome="failed"),
            attempt(2, 0, 9, lane="a", outcome="lost"),
            attempt(3, 0, 1, lane="a", outcome="cancelled"),
        ]
    )
    assert (busy.name, busy.failed, busy.lost) == ("a", 0, 1)
    assert (other.name, other.failed, other.lost) == ("b", 1, 0)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 20)), min_size=1, max_size=60))
def test_no_two_attempts_share_a_slot_at_once(spans: list[tuple[float, float]]) -> None:
    (lane,) = lanes_of([attempt(n, began, began + ran) for n, (began, ran) in enumerate(spans)])
    for slot in range(lane.slots):
        mine = [each for taken, each in lane.attempts if taken == slot]
        assert mine
        assert all(one.ended <= next_.began for one, next_ in pairwise(mine))


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=60))
def test_added_up_they_are_busy_for_as_long(pairs: list[tuple[float, float]]) -> None:
    step, steps = 12.5, 8
    sums = LaneSums(step, steps)
    total = 0.0
    for one, other in pairs:
        began, ended = min(one, other), max(one, other)
        first, last = int(began / step), int(ended / step)
        sums.add(LaneSum("w", "job", first, last, 1, began - first * step, ended - last * step, failed=0, lost=0))
        total += ended - began
    (lane,) = sums.lanes()
    assert lane.seconds == pytest.approx(total, abs=1e-6)
    assert sum(cell.seconds for cell in lane.cells.values()) == pytest.approx(total, abs=1e-6)
    assert all(0 <= at < steps for at, _ in lane.cells)
    assert all(-1e-9 <= cell.seconds <= step * len(pairs) + 1e-9 for cell in lane.cells.values())
    assert sums.count == len(pairs) == sum(cell.ended for cell in lane.cells.values())


def test_a_lane_is_as_high_as_its_busiest_step() -> None:
    sums = LaneSums(10.0, 6)
    sums.add(LaneSum("w", "long", 0, 2, 2, 0.0, 20.0, failed=1, lost=1))
    sums.add(LaneSum("w", "short", 1, 1, 5, 10.0, 15.0, failed=0, lost=0))
    (lane,) = sums.lanes()
    assert {key: (cell.seconds, cell.ended) for key, cell in lane.cells.items()} == {
        (0, "long"): (20.0, 0),
        (1, "long"): (20.0, 0),
        (2, "long"): (20.0, 2),
        (1, "short"): (5.0, 5),
    }
    assert (lane.slots, lane.count, lane.failed, lane.lost) == (3, 7, 1, 1)
