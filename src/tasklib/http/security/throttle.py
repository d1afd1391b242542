"""What a caller may create: by what that does, and how many tasks in a second."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from fastapi import Request

from tasklib.core.limits import TokenBucket
from tasklib.core.schedule import UNIQUE_KEY_PREFIX
from tasklib.http.errors import Refused
from tasklib.http.schemas.inputs import CreateOptions, CreateTask
from tasklib.http.security.auth import Permission, principal_of, require

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


def allow_creation(request: Request, bodies: Sequence[CreateTask]) -> None:
    """Refuse with 403 what the caller may not do, and with 429 what it does too fast."""
    for body in bodies:
        more = _beyond_creating(body.options)
        if more is not None:
            require(request, Permission.OPERATE, more)
    allow_submission(request, len(bodies))


def _beyond_creating(options: CreateOptions) -> str | None:
    """What a submission does beside adding a task; None if nothing."""
    if options.repeat is not None:
        return "this: options.repeat makes or changes a schedule"
    if options.unique_key is not None and options.unique_key.startswith(UNIQUE_KEY_PREFIX):
        return f"this: keys that begin with {UNIQUE_KEY_PREFIX} are those of schedules, which it would hold up"
    if options.on_conflict == "replace":
        return "this: options.onConflict replace rewrites a task that is stored, whoever made it"
    return None


def allow_submission(request: Request, count: int = 1) -> None:
    """Refuse the request with 429 if its caller submits faster than `submit_rate_limit` allows."""
    throttle: Throttle = request.app.state.throttle
    wait = throttle.take(principal_of(request).identity, count)
    if wait:
        raise Refused(
            429,
            "too-many-submissions",
            f"this caller submits faster than the service allows; send it again in {math.ceil(wait)} s",
            headers={"Retry-After": str(math.ceil(wait))},
        )
