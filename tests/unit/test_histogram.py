"""A percentile from buckets is right to a tenth, from a tenth of a millisecond to days."""

from __future__ import annotations

import random

import pytest

from tasklib.core.insights.histogram import Histogram, bucket_of, merged, percentile, share_within


@pytest.mark.parametrize("seconds", [0.0005, 0.017, 0.3, 1, 42, 3600, 86_400])
def test_a_lone_duration_is_its_own_percentile(seconds: float) -> None:
    assert percentile({bucket_of(seconds): 1}, 0.5) == pytest.approx(seconds, rel=0.1)


def test_percentiles_of_many_are_near_the_exact_ones() -> None:
    source = random.Random(1)
    durations = sorted(source.lognormvariate(0, 2) for _ in range(5000))
    histogram = Histogram(map(bucket_of, durations))
    for part in (0.5, 0.95, 0.99):
        assert percentile(histogram, part) == pytest.approx(durations[int(part * len(durations))], rel=0.15)


def test_nothing_has_no_percentile_and_extremes_have_a_bucket() -> None:
    assert percentile({}, 0.5) is None
    assert (bucket_of(-1), bucket_of(0)) == (0, 0)
    assert bucket_of(1e30) < 200


def test_stored_histograms_are_added_up() -> None:
    assert merged([{"3": 1, "5": 2}, None, {"5": 1}]) == {3: 1, 5: 3}


def test_the_share_within_a_limit_counts_its_bucket_in_part() -> None:
    histogram = Histogram({bucket_of(0.01): 90, bucket_of(3.0): 9, bucket_of(60.0): 1})
    assert share_within(histogram, 10) == pytest.approx(0.99)
    assert share_within(histogram, 1) == pytest.approx(0.9)
    assert 0.9 < (share_within(histogram, 3.0) or 0) < 0.99
    assert share_within({}, 1) is None
