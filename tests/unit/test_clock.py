"""The clock that is moved by hand."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tasklib import ConfigurationError, ManualClock


def test_it_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(datetime(2030, 1, 1, tzinfo=UTC))

    moved = clock.advance(1.5, minutes=1)

    assert clock.now() == moved == datetime(2030, 1, 1, 0, 1, 1, 500_000, tzinfo=UTC)


def test_it_starts_at_a_whole_millisecond_which_every_database_keeps() -> None:
    assert ManualClock().now().microsecond % 1000 == 0


def test_a_start_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="time zone"):
        ManualClock(datetime(2030, 1, 1))  # noqa: DTZ001
