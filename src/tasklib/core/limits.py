"""Pauses and limits across all workers, as values; and the limits that one worker keeps by itself.  Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from tasklib.core.codec import is_storable
from tasklib.core.numbers import is_number, is_whole
from tasklib.errors import ConfigurationError

MAX_BUDGET_NAME: Final = 200
"""Characters of a budget's name, which names steps too."""


def check_budget(name: Any) -> str:
    """The name of a budget, if it can be one."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_BUDGET_NAME or not is_storable(name):
        raise ConfigurationError(f"a budget's name is a text of 1 to {MAX_BUDGET_NAME} characters, got {name!r}")
    return name


def is_amount(value: Any) -> bool:
    """Whether it is a number of tokens: finite, 0 or more."""
    return is_number(value) and 0 <= value < 1e15


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause, with its author, time and reason; `name` is None for the whole queue."""

    name: str | None
    since: datetime
    by: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Limit:
    """Limits in force across all workers; `name` is None for the whole queue."""

    name: str | None
    rate: float | None
    """Tasks that may start in a second."""
    max_running: int | None
    """Tasks that may run at once."""
    tokens: float | None
    """Tasks that may start right now without waiting."""
    burst: float | None = None
    """Tasks that may start at once after a quiet time; None for one second's worth, and at least one."""
    declared: Mapping[str, float] | None = None
    """What the task's code declares, whether it holds or was changed at run time since: rate, burst, max_running."""

    def is_declared(self, field: Literal["rate", "max_running"]) -> bool:
        """Whether this limit is the one that the code declares."""
        return self.declared is not None and self.declared.get(field) == getattr(self, field)


@dataclass(frozen=True, slots=True)
class KeyLimit:
    """How many tasks of a concurrency key may run at once."""

    key: str | None
    """None for every key without a limit of its own."""
    max_running: int
    """0 is unlimited."""
    name: str | None = None
    """The tasks meant, if it is not all of a key together."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Tokens that workflows may spend over all workers, and what is left of them now."""

    name: str
    rate: float
    """Tokens that come in a second."""
    burst: float
    """Tokens that it holds at most."""
    tokens: float
    """Tokens that can be spent right now."""


class TokenBucket:
    """Starts `rate` tasks a second; what is not used fills up to one second's worth, and at least one."""

    def __init__(self, rate: Any, clock: Callable[[], float] = time.monotonic) -> None:
        if not is_number(rate) or not 0 < rate < 1e9:
            raise ConfigurationError(f"a rate limit is a number of tasks per second above 0, got {rate!r}")
        self.rate = float(rate)
        self.capacity = max(1.0, self.rate)
        self._clock = clock
        self._tokens = self.capacity
        self._refilled = clock()

    @property
    def available(self) -> int:
        """How many tasks may start now."""
        self._refill()
        return int(self._tokens)

    @property
    def tokens(self) -> float:
        """The tokens left, fractions included.  Changes nothing, so that any thread may read it."""
        return min(self.capacity, self._tokens + (self._clock() - self._refilled) * self.rate)

    @property
    def next_in(self) -> float:
        """Seconds until one more task may start; 0 if one may now."""
        self._refill()
        return max(0.0, (1 - self._tokens) / self.rate)

    def take(self, count: int) -> None:
        """Note that this many tasks start."""
        self._refill()
        self._tokens -= count

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self.capacity, self._tokens + (now - self._refilled) * self.rate)
        self._refilled = now


class LocalLimits:
    """The limits of one worker, by task name; may be changed while it runs."""

    def __init__(self) -> None:
        self._clock = time.monotonic
        self._rates: Mapping[str, TokenBucket] = {}
        self._counts: Mapping[str, int] = {}

    def measure_by(self, clock: Callable[[], float]) -> None:
        """Measure rates by another clock from now on."""
        if clock is not self._clock:
            self._clock = clock
            self._rates = {name: TokenBucket(bucket.rate, clock) for name, bucket in self._rates.items()}

    def __bool__(self) -> bool:
        """Whether anything is limited."""
        return bool(self._rates or self._counts)

    def set_rate(self, name: str, tasks_per_second: float) -> None:
        """Start at most so many tasks of the name in a second; 0 lifts the limit."""
        rest = {each: bucket for each, bucket in self._rates.items() if each != name}
        self._rates = {**rest, name: TokenBucket(tasks_per_second, self._clock)} if tasks_per_second else rest

    def set_count(self, name: str, count: Any) -> None:
        """Run at most so many tasks of the name, a whole number, at once."""
        if not is_whole(count) or count < 1:
            raise ConfigurationError(f"a worker count is a whole number, 1 or more, got {count!r}")
        self._counts = {**self._counts, name: count}

    def default_count(self, name: str) -> None:
        """Run one task of the name at once, unless another count was set."""
        self._counts = {name: 1, **self._counts}

    def caps(self, defined: Mapping[str, int], held: Mapping[str, int]) -> dict[str, int]:
        """How many more tasks of each limited name may be claimed, given what is held of each.

        `defined` are the limits the tasks themselves declare; those set here come before them.
        """
        caps = {name: max(0, count - held.get(name, 0)) for name, count in {**defined, **self._counts}.items()}
        for name, bucket in self._rates.items():
            caps[name] = min(bucket.available, caps.get(name, bucket.available))
        return caps

    def report(self, defined: Mapping[str, int]) -> dict[str, dict[str, float]]:
        """The limits by task name, as the worker reports them: `max_running`, `rate`, and the `tokens` it has left."""
        report: dict[str, dict[str, float]] = {
            name: {"max_running": count} for name, count in {**defined, **self._counts}.items()
        }
        for name, bucket in self._rates.items():
            report.setdefault(name, {}).update(rate=bucket.rate, tokens=bucket.tokens)
        return report

    def started(self, name: str) -> None:
        """Note that a task of the name was claimed."""
        if self._rates and name in self._rates:
            self._rates[name].take(1)

    @property
    def next_in(self) -> float | None:
        """Seconds until a rate that is used up allows a task again; None if none is."""
        return min((bucket.next_in for bucket in self._rates.values() if bucket.available < 1), default=None)
