"""How many tasks to claim: free slots, and a buffer that the measured durations allow.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

BUFFER_SECONDS = 0.1
"""A claimed task waits in the buffer at most about this long."""
SLOW_SECONDS = 0.05
"""Tasks slower than this are not claimed ahead at all."""
MAX_BUFFER = 2000
"""Claims of more than half of it cost no less for each task."""
MAX_CLAIM = 1000
REFILL_BELOW = 0.7
"""The part of the buffer left when the next claim is sent: its answer should arrive before the rest has run."""
SMOOTHING = 0.2


class ClaimSize:
    """Sizes the next claim from how long tasks have lately taken."""

    def __init__(self, concurrency: int, prefetch: int | None, batch_size: int | None = None) -> None:
        self._concurrency = concurrency
        self._batch_size = batch_size or MAX_CLAIM
        self._prefetch = prefetch
        self._duration: float | None = None
        self._pace = 0.0
        """Seconds from one end to the next lately, which is more than quick tasks take themselves."""
        self._last_end: float | None = None
        self.limited = False
        """Whether limits across workers apply: then nothing is claimed ahead, because limits are checked at the
        claim."""
        self.has_suspects = False
        """Whether suspect tasks are held: then nothing is claimed ahead either, since they may kill the worker."""

    def resize(self, concurrency: int) -> None:
        """Size claims for this concurrency from now on."""
        self._concurrency = concurrency

    def took(self, seconds: Sequence[float], ended: float) -> None:
        """Note how long tasks ran, and when the last of them ended."""
        worst, mean = max(seconds), sum(seconds) / len(seconds)
        weight = 1 - (1 - SMOOTHING) ** len(seconds)
        if self._duration is None or worst > self._duration * 10:
            # A slow one counts at once: better to claim too few for a moment than to let tasks wait in a buffer.
            self._duration = worst
        else:
            self._duration += weight * (mean - self._duration)
        if self._last_end is not None:
            # A worker that had nothing to do for an hour is not slow.
            gap = min(max(0.0, ended - self._last_end) / len(seconds), SLOW_SECONDS)
            self._pace += weight * (gap - self._pace)
        self._last_end = ended

    @property
    def buffer(self) -> int:
        """How many tasks to hold beyond those running."""
        if self.limited or self.has_suspects:
            return 0
        if self._prefetch is not None:
            return self._prefetch
        if self._duration is None or self._duration > SLOW_SECONDS:
            return 0
        return min(MAX_BUFFER, int(BUFFER_SECONDS / max(self._duration / self._concurrency, self._pace, 1e-6)))

    def next_claim(self, running: int, buffered: int) -> int:
        """How many tasks to ask for now; 0 while the buffer is still full enough, so that claims stay large."""
        free = self._concurrency - running
        if buffered > self.buffer * REFILL_BELOW and buffered >= free:
            return 0
        return min(max(0, free + self.buffer - buffered), self._batch_size)
