"""How long to wait before an attempt is repeated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasklib.core.retry import RETRY_CAP_SECONDS, Backoff
from tasklib.errors import ConfigurationError


def test_the_default_without_jitter_is_seed_000s_five_ten_twenty():
    policy = Backoff(jitter=0)

    assert [policy(n, None) for n in range(3)] == [5.0, 10.0, 20.0]


def test_jitter_spreads_the_delay_by_its_fraction_to_both_sides():
    least, most = Backoff(rng=lambda: 0.0), Backoff(rng=lambda: 1.0)

    assert (least(0), most(0)) == (4.0, 6.0)


def test_the_cap_holds_after_jitter_too():
    assert Backoff(cap=60, rng=lambda: 1.0)(20) == 60


def test_a_count_beyond_what_a_float_can_hold_gives_the_cap():
    assert Backoff(jitter=0)(1_000_000) == RETRY_CAP_SECONDS


def test_a_whole_number_as_multiplier_does_not_compute_giant_integers():
    assert Backoff(multiplier=3, jitter=0)(10**9) == RETRY_CAP_SECONDS


def test_a_base_of_zero_never_waits_however_many_retries_there_were():
    assert Backoff(base=0)(10_000) == 0


@pytest.mark.parametrize(
    "wrong",
    [{"base": -1}, {"multiplier": 0.5}, {"cap": -1}, {"jitter": 1.5}, {"jitter": -0.1}, {"base": float("nan")}],
    ids=str,
)
def test_a_backoff_that_cannot_work_is_refused_with_its_values(wrong: dict[str, float]):
    with pytest.raises(ConfigurationError, match=str(next(iter(wrong.values())))):
        Backoff(**wrong)


@given(
    st.builds(
        Backoff,
        base=st.floats(0, 1e6),
        multiplier=st.floats(1, 100),
        cap=st.floats(0, 1e9),
        jitter=st.floats(0, 1),
    ),
    st.integers(0, 10**6),
)
def test_a_delay_lies_between_zero_and_the_cap(policy: Backoff, retry_count: int):
    assert 0 <= policy(retry_count) <= policy.cap


@given(st.integers(0, 10**4))
def test_the_mean_delay_never_shrinks_with_another_retry(retry_count: int):
    policy = Backoff()

    assert policy.mean(retry_count) <= policy.mean(retry_count + 1)
