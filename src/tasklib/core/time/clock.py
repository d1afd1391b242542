"""Time as tasklib sees it: the database's clock in production, a clock moved by hand in tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from tasklib.errors import ConfigurationError

FIRST_MOMENT: Final = datetime(1, 1, 2, tzinfo=UTC)
NO_MOMENT: Final = datetime(9999, 12, 31, tzinfo=UTC)
"""Times that are stored lie before it: Python can show them in every time zone."""


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
    """A clock that stands still until it is moved.

    Examples:
        >>> clock = ManualClock(datetime(2030, 1, 1, tzinfo=UTC))
        >>> later = TaskQueue("sqlite:///:memory:", clock=clock)
        >>> task_id = later.task(add.function).options(delay_seconds=3600).submit(1)
        >>> later.process_batch()
        0
        >>> clock.advance(hours=1)
        datetime.datetime(2030, 1, 1, 1, 0, tzinfo=datetime.timezone.utc)
        >>> later.process_batch()
        1
        >>> later.close()
    """

    def __init__(self, start: datetime | None = None) -> None:
        if start is None:
            # SQLite computes in milliseconds: a delay added to a finer moment may end a little after it.
            now = datetime.now(UTC)
            start = now.replace(microsecond=now.microsecond // 1000 * 1000)
        self._now = require_aware(start, "the clock's start")

    def now(self) -> datetime:
        """The moment the clock was last set to.

        Examples:
            >>> ManualClock(datetime(2030, 1, 1, tzinfo=UTC)).now().year
            2030
        """
        return self._now

    def advance(self, seconds: float = 0.0, **parts: float) -> datetime:
        """Move forward by seconds and any keyword of `timedelta`; returns the new time.

        Examples:
            >>> ManualClock(datetime(2030, 1, 1, tzinfo=UTC)).advance(30, minutes=5).strftime("%H:%M:%S")
            '00:05:30'
        """
        self._now += timedelta(seconds=seconds, **parts)
        return self._now


def require_aware(moment: datetime, what: str) -> datetime:
    """The moment itself; a datetime without a time zone is an error, because it could mean two instants."""
    given: Any = moment
    if not isinstance(given, datetime):
        raise ConfigurationError(f"{what} must be a datetime with a time zone, got {given!r}")
    if moment.tzinfo is None:
        raise ConfigurationError(
            f"{what} needs a time zone, got the naive {moment.isoformat()}; use datetime.now(timezone.utc) or similar"
        )
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise ConfigurationError(_out_of_range(moment, what)) from None
    return moment


def require_storable(moment: datetime, what: str) -> datetime:
    """The moment itself; one without a time zone is an error, and one that no database keeps."""
    if not FIRST_MOMENT <= require_aware(moment, what) < NO_MOMENT:
        raise ConfigurationError(_out_of_range(moment, what))
    return moment


def _out_of_range(moment: datetime, what: str) -> str:
    return f"{what} must lie between {FIRST_MOMENT.date()} and {NO_MOMENT.date()}, got {moment.isoformat()}"
