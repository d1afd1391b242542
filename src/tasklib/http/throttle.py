"""How many tasks one caller may submit in a second; who sends more is told when to come back."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

from fastapi import Request

from tasklib.http.auth import principal_of
from tasklib.http.errors import Refused
from tasklib.limits import TokenBucket

CALLERS: Final = 10_000


class Throttle:
    """A bucket of tasks for each caller, filled at the rate, holding one second's worth and at least one."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, caller: str, count: int = 1) -> float:
        """Take so many tasks from the caller's bucket: 0 if one was there, else the seconds until one will be.

        A batch larger than what is left is let through and paid for afterwards.
        """
        if not self._rate:
            return 0.0
        bucket = self._buckets.pop(caller, None) or TokenBucket(self._rate)
        self._buckets[caller] = bucket
        if len(self._buckets) > CALLERS:
            self._buckets.popitem(last=False)
        if bucket.available >= 1:
            bucket.take(count)
            return 0.0
        return max(bucket.next_in, 1e-3)


def allow_submission(request: Request, count: int = 1) -> None:
    """Refuse the request with 429 if its caller submits faster than `submit_rate_limit` allows."""
    throttle: Throttle = request.app.state.throttle
    wait = throttle.take(principal_of(request).name, count)
    if wait:
        raise Refused(
            429,
            "too-many-submissions",
            f"this caller submits faster than the service allows; send it again in {math.ceil(wait)} s",
            headers={"Retry-After": str(math.ceil(wait))},
        )
