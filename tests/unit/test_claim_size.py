"""A claim asks for what can start now, and for as much ahead as will surely start soon."""

from __future__ import annotations

import pytest

from tasklib.worker.execution.claim_size import (
    BUFFER_SECONDS,
    MAX_BUFFER,
    MAX_CLAIM,
    REFILL_BELOW,
    SLOW_SECONDS,
    ClaimSize,
)


def test_before_anything_ran_only_free_places_are_filled():
    size = ClaimSize(10, None)

    assert size.buffer == 0
    assert [size.next_claim(running, 0) for running in (0, 4, 10)] == [10, 6, 0]


def test_quick_tasks_are_claimed_ahead_for_as_long_as_they_may_wait():
    size = sized(10, took=0.01)

    assert size.buffer == int(BUFFER_SECONDS / 0.01 * 10)
    assert size.next_claim(0, 0) == 10 + size.buffer


@pytest.mark.parametrize(
    "seconds, buffer", [(0.0, MAX_BUFFER), (1e-6, MAX_BUFFER), (SLOW_SECONDS, 8), (SLOW_SECONDS * 1.01, 0), (60.0, 0)]
)
def test_the_buffer_has_an_end_and_slow_tasks_have_none(seconds: float, buffer: int):
    assert sized(4, took=seconds).buffer == buffer


def test_one_slow_task_empties_the_buffer_at_once_and_quick_ones_fill_it_again_slowly():
    size = sized(10, took=0.001)

    size.took([0.001, 0.001, 1.0], 0.0)
    assert size.buffer == 0

    rounds = 0
    while size.buffer == 0:
        size.took([0.001], 0.0)
        rounds += 1
    assert 5 < rounds < 50


def test_many_durations_at_once_weigh_as_much_as_one_after_the_other():
    together, each = sized(10, took=0.01), sized(10, took=0.01)

    together.took([0.02] * 5, 0.0)
    for _ in range(5):
        each.took([0.02], 0.0)

    assert together.buffer == each.buffer < sized(10, took=0.01).buffer


@pytest.mark.parametrize("apart, buffer", [(1e-5, MAX_BUFFER), (1e-3, 100), (3600.0, 2)])
def test_no_more_is_claimed_ahead_than_ends_in_the_time_that_it_may_wait(apart: float, buffer: int):
    size = sized(10, took=0.0)

    for number in range(1, 11):
        size.took([0.0] * 10, number * 10 * apart)

    assert size.buffer == pytest.approx(buffer, rel=0.01)


def test_a_pause_slows_claims_down_for_a_few_tasks_only():
    size = sized(10, took=0.001)
    size.took([0.001] * 20, 3600.0)

    size.took([0.001] * 40, 3600.01)

    assert size.buffer > 100


def test_while_the_buffer_is_full_enough_nothing_is_asked_for():
    size = sized(10, took=0.01)
    enough = int(size.buffer * REFILL_BELOW)

    assert size.next_claim(10, enough + 1) == 0
    assert size.next_claim(10, enough) == size.buffer - enough


def test_free_places_that_the_buffer_cannot_fill_are_asked_for():
    size = ClaimSize(10, 2)

    assert size.next_claim(0, 2) == 10
    assert size.next_claim(8, 2) == 0
    assert size.next_claim(10, 5) == 0


@pytest.mark.parametrize("reason", ["limited", "has_suspects"])
def test_with_limits_or_suspects_about_nothing_is_claimed_ahead(reason: str):
    size = sized(10, took=0.001, prefetch=50)
    setattr(size, reason, True)

    assert (size.buffer, size.next_claim(7, 0)) == (0, 3)

    setattr(size, reason, False)
    assert size.buffer == 50


def test_prefetch_fixes_the_buffer_whatever_tasks_take():
    assert [sized(10, took=seconds, prefetch=5).buffer for seconds in (0.0001, 60.0)] == [5, 5]
    assert sized(10, took=0.0001, prefetch=0).buffer == 0


def test_a_claim_is_never_larger_than_the_batch_size():
    assert ClaimSize(100, None, 30).next_claim(0, 0) == 30
    assert ClaimSize(100, 5000).next_claim(0, 0) == MAX_CLAIM


def sized(concurrency: int, *, took: float, prefetch: int | None = None) -> ClaimSize:
    """A size that has seen tasks of one duration."""
    size = ClaimSize(concurrency, prefetch)
    size.took([took], 0.0)
    return size
