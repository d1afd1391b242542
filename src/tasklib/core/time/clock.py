"""Time as tasklib sees it: the database's clock in production, a clock moved by hand in tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol

from tasklib.errors import require_aware


class Clock(Protocol):
    """Gives the moment that a statement uses as `now`."""

    def now(self) -> datetime | None:
        """The moment to use, or None for the database's own clock."""
        ...


class DatabaseClock:
    """The default: every statement reads the clock of the database it runs on."""

    def now(self) -> datetime | None:
        """Always None, so that the statement asks the database."""
        return None


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, start: datetime | None = None) -> None:
        if start is None:
            # SQLite computes in milliseconds: a delay added to a finer moment may end a little after it.
            now = datetime.now(UTC)
            start = now.replace(microsecond=now.microsecond // 1000 * 1000)
        self._now = require_aware(start, "the clock's start")

    def now(self) -> datetime:
        """The moment the clock was last set to."""
        return self._now

    def advance(self, seconds: float = 0.0, **parts: float) -> datetime:
        """Move forward by seconds and any keyword of `timedelta`; returns the new time."""
        self._now += timedelta(seconds=seconds, **parts)
        return self._now
