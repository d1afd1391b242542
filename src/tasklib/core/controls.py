"""What is paused and limited across all workers, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal


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
