"""How long to wait before an attempt is repeated.  Pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from tasklib.errors import ConfigurationError, DatabaseBusy, DatabaseFull, DatabaseUnavailable

RETRY_CAP_SECONDS = 6 * 3600.0


class RetryPolicy(Protocol):
    """Gives the delay before the next attempt; any callable `(retry_count, error) -> seconds` is one."""

    def __call__(self, retry_count: int, error: BaseException | None) -> float:
        """Seconds to wait, given how many retries were already made (0 after the first attempt)."""
        ...


@dataclass(frozen=True, slots=True)
class Backoff:
    """`base * multiplier ** retry_count` seconds, at most `cap`, spread by `jitter` to both sides.

    Examples:
        >>> @queue.task(max_retries=5, retry_policy=Backoff(base=1.0, multiplier=3, cap=60))
        ... def flaky() -> None:
        ...     raise ConnectionError
        >>> [Backoff(base=1.0, multiplier=3, cap=60.0, jitter=0)(retry) for retry in range(5)]
        [1.0, 3.0, 9.0, 27.0, 60.0]
    """

    base: float = 5.0
    multiplier: float = 2.0
    cap: float = RETRY_CAP_SECONDS
    jitter: float = 0.2
    rng: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        # Written so that NaN fails too.
        if not (self.base >= 0 and self.multiplier >= 1 and self.cap >= 0 and 0 <= self.jitter <= 1):
            raise ConfigurationError(
                f"a backoff needs base >= 0, multiplier >= 1, cap >= 0 and jitter from 0 to 1, got {self}"
            )

    def __call__(self, retry_count: int, error: BaseException | None = None) -> float:
        """The delay before retry number `retry_count + 1`."""
        return min(self.mean(retry_count) * (1 + self.jitter * (2 * self.rng() - 1)), self.cap)

    def mean(self, retry_count: int) -> float:
        """The delay without its jitter.

        Examples:
            >>> Backoff(base=5.0).mean(2)
            20.0
        """
        try:
            return min(self.base * float(self.multiplier) ** retry_count, self.cap)
        except OverflowError:
            return self.cap if self.base else 0.0


OUTAGES: Final = (DatabaseUnavailable, DatabaseBusy, DatabaseFull)
"""The errors of a database that is expected back: what failed is tried again."""
OUTAGE_PAUSE: Final = Backoff(base=0.075, cap=1.0, jitter=1 / 3)
"""The pause before each new try during an outage."""
