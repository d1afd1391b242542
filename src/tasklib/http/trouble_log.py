"""Logs what is wrong with the database, but not for each request: open pages send one after the other."""

from __future__ import annotations

import logging
import math
from typing import Final

from tasklib.core.time.timing import Timing

logger = logging.getLogger("tasklib.http")

EVERY_SECONDS: Final = 30.0


class TroubleLog:
    """Logs at most one error in half a minute."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._next_at = -math.inf

    def warn(self, error: Exception) -> None:
        """Log the error, unless one was logged a moment ago."""
        now = self._timing.monotonic()
        if now >= self._next_at:
            self._next_at = now + EVERY_SECONDS
            logger.warning("requests are answered with 503: %s", error)
