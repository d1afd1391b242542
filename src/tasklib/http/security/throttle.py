"""Rate limits of callers that create tasks."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from tasklib.core.limits import TokenBucket
from tasklib.core.time.timing import Timing

CALLERS: Final = 10_000


class Throttle:
    """A bucket of tasks for each caller, filled at the rate, holding one second's worth and at least one."""

    def __init__(self, rate: float, timing: Timing) -> None:
        self._rate = rate
        self._timing = timing
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, caller: str, count: int = 1) -> float:
        """Take this many tasks from the caller's bucket: 0 if one was available, else the seconds until one is.

        A batch larger than what is left is accepted, and the next tasks wait for it.
        """
        if not self._rate:
            return 0.0
        bucket = self._buckets.pop(caller, None) or TokenBucket(self._rate, self._timing.monotonic)
        self._buckets[caller] = bucket
        if len(self._buckets) > CALLERS:
            self._buckets.popitem(last=False)
        if bucket.available >= 1:
            bucket.take(count)
            return 0.0
        return max(bucket.next_in, 1e-3)
