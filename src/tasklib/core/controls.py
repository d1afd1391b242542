"""What is paused and limited across all workers, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Pause:
    """Something that is paused, by whom, since when and why; `name` is None for the whole queue."""

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


@dataclass(frozen=True, slots=True)
class KeyLimit:
    """How many tasks of a concurrency key may run at once."""

    key: str | None
    """None for every key without a limit of its own."""
    max_running: int
    """0 is unlimited."""
    name: str | None = None
    """The tasks meant, if it is not all of a key together."""
