"""Histograms of durations: buckets that grow by a fifth, so that a percentile is accurate to 10 %."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

SMALLEST: Final = 1e-4
"""Seconds; what took less counts as this."""
PER_DOUBLING: Final = 4
LAST: Final = 159

Histogram = Counter[int]
"""How many fell into each bucket."""


def bucket_of(seconds: float) -> int:
    """The bucket of a duration."""
    if seconds <= SMALLEST:
        return 0
    return min(LAST, int(PER_DOUBLING * math.log2(seconds / SMALLEST)) + 1)


def bounds_of(bucket: int) -> tuple[float, float]:
    """The shortest and the longest duration that fall into a bucket, in seconds."""
    if bucket == 0:
        return 0.0, SMALLEST
    return SMALLEST * 2 ** ((bucket - 1) / PER_DOUBLING), SMALLEST * 2 ** (bucket / PER_DOUBLING)


def percentile(histogram: Mapping[int, int], part: float) -> float | None:
    """The percentile in seconds, `part` from 0 to 1; None of an empty histogram."""
    wanted = part * sum(histogram.values())
    seen = 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= wanted:
            return _middle(bucket)
    return None


def mean(histogram: Mapping[int, int]) -> float | None:
    """The mean in seconds; None of an empty histogram."""
    total = sum(histogram.values())
    return sum(_middle(bucket) * count for bucket, count in histogram.items()) / total if total else None


def share_within(histogram: Mapping[int, int], seconds: float) -> float | None:
    """The part, from 0 to 1, that took at most so long; None of an empty histogram.

    Durations in the bucket that contains the limit count as spread evenly over it.
    """
    total = sum(histogram.values())
    if not total:
        return None
    within = 0.0
    for bucket, count in histogram.items():
        low, high = bounds_of(bucket)
        within += count * min(1.0, max(0.0, (seconds - low) / (high - low)))
    return within / total


def merged(stored: Iterable[Mapping[str, int] | None]) -> Histogram:
    """The sum of several histograms that were stored as JSON objects."""
    total: Histogram = Counter()
    for each in stored:
        for bucket, count in (each or {}).items():
            total[int(bucket)] += count
    return total


def _middle(bucket: int) -> float:
    return float(f"{SMALLEST * 2 ** ((bucket - 0.5) / PER_DOUBLING):.3g}") if bucket else SMALLEST
