"""How long to wait before an attempt is repeated.  Pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

RETRY_CAP_SECONDS = 6 * 3600.0


class RetryPolicy(Protocol):
    """Answers the delay before the next attempt; any callable `(retry_count, error) -> seconds` is one."""

    def __call__(self, retry_count: int, error: BaseException | None) -> float:
        """Seconds to wait, given how many retries were already made (0 after the first attempt)."""
        ...


@dataclass(frozen=True, slots=True)
class Backoff:
    """`base * multiplier ** retry_count` seconds, at most `cap`, spread by `jitter` to both sides."""

    base: float = 5.0
    multiplier: float = 2.0
    cap: float = RETRY_CAP_SECONDS
    jitter: float = 0.2
    rng: Callable[[], float] = random.random

    def __call__(self, retry_count: int, error: BaseException | None = None) -> float:
        """The delay before retry number `retry_count + 1`."""
        return min(self.mean(retry_count) * (1 + self.jitter * (2 * self.rng() - 1)), self.cap)

    def mean(self, retry_count: int) -> float:
        """The delay without its jitter."""
        try:
            return min(self.base * self.multiplier**retry_count, self.cap)
        except OverflowError:
            return self.cap
