"""Limits that one worker keeps by itself."""

from __future__ import annotations

import pytest

from tasklib.core.limits import LocalLimits, TokenBucket
from tasklib.errors import ConfigurationError


class Seconds:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


def test_bucket_starts_with_one_seconds_worth(clock: Seconds) -> None:
    assert TokenBucket(10, clock).available == 10


def test_bucket_refills_at_its_rate(clock: Seconds) -> None:
    bucket = TokenBucket(10, clock)
    bucket.take(10)
    assert bucket.available == 0
    clock.now += 0.35
    assert bucket.available == 3


def test_bucket_in_debt_says_when_one_may_start_again(clock: Seconds) -> None:
    bucket = TokenBucket(10, clock)
    bucket.take(60)
    assert bucket.next_in == pytest.approx(5.1)
    clock.now += 5.1
    assert (bucket.available, bucket.next_in) == (1, 0.0)


def test_bucket_never_holds_more_than_one_seconds_worth(clock: Seconds) -> None:
    bucket = TokenBucket(10, clock)
    clock.now += 100
    assert bucket.available == 10


def test_a_rate_below_one_still_allows_one_at_a_time(clock: Seconds) -> None:
    bucket = TokenBucket(0.5, clock)
    assert bucket.available == 1
    bucket.take(1)
    clock.now += 1.9
    assert bucket.available == 0
    clock.now += 0.2
    assert bucket.available == 1


def test_bucket_says_when_the_next_task_may_start(clock: Seconds) -> None:
    bucket = TokenBucket(4, clock)
    bucket.take(4)
    assert bucket.next_in == pytest.approx(0.25)
    clock.now += 0.2
    assert bucket.next_in == pytest.approx(0.05)
    clock.now += 0.05
    assert bucket.next_in == 0


@pytest.mark.parametrize("rate", [0, -1, float("nan"), True, "10"])
def test_a_rate_that_is_none_is_refused_by_value(rate: object) -> None:
    with pytest.raises(ConfigurationError, match="tasks per second"):
        TokenBucket(rate)  # type: ignore[arg-type]


def test_caps_leave_what_is_held_out() -> None:
    limits = LocalLimits()
    limits.set_count("crawl", 3)
    assert limits.caps({"mail": 2}, {"crawl": 1, "mail": 5}) == {"crawl": 2, "mail": 0}


def test_a_count_set_here_comes_before_the_tasks_own() -> None:
    limits = LocalLimits()
    limits.set_count("crawl", 3)
    assert limits.caps({"crawl": 1}, {}) == {"crawl": 3}


def test_the_tighter_of_count_and_rate_holds() -> None:
    limits = LocalLimits()
    limits.set_count("crawl", 3)
    limits.set_rate("crawl", 2)
    assert limits.caps({}, {}) == {"crawl": 2}


def test_a_started_task_costs_a_token() -> None:
    limits = LocalLimits()
    limits.set_rate("crawl", 1)
    limits.started("crawl")
    assert limits.caps({}, {}) == {"crawl": 0}
    assert limits.next_in is not None


def test_a_rate_of_zero_lifts_the_limit() -> None:
    limits = LocalLimits()
    limits.set_rate("crawl", 1)
    limits.set_rate("crawl", 0)
    assert limits.caps({}, {}) == {}
    assert not limits


def test_the_default_count_does_not_replace_one_that_was_set() -> None:
    limits = LocalLimits()
    limits.set_count("crawl", 3)
    limits.default_count("crawl")
    limits.default_count("mail")
    assert limits.caps({}, {}) == {"crawl": 3, "mail": 1}
