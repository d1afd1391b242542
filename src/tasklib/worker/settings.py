"""What a worker can be told, validated in one place."""

from __future__ import annotations

from dataclasses import dataclass

from tasklib.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How one worker works; the queue's configuration says the rest."""

    concurrency: int = 1
    """Tasks that run at once."""
    poll_interval_seconds: float = 1.0
    """How long an idle worker waits at most before it looks for work by itself."""
    prefetch: int | None = None
    """Tasks claimed ahead; None lets the measured durations decide."""
    grace_seconds: float = 30.0
    """How long running tasks may go on after the worker was told to stop."""
    signals: bool = True
    """Whether SIGTERM and SIGINT stop the worker."""

    def __post_init__(self) -> None:
        if not isinstance(self.concurrency, int) or isinstance(self.concurrency, bool) or self.concurrency < 1:
            raise ConfigurationError(f"concurrency must be a whole number, 1 or more, got {self.concurrency!r}")
        if not _is_seconds(self.poll_interval_seconds) or self.poll_interval_seconds <= 0:
            raise ConfigurationError(
                f"poll_interval_seconds must be a number of seconds above 0, got {self.poll_interval_seconds!r}"
            )
        if self.prefetch is not None and (not isinstance(self.prefetch, int) or self.prefetch < 0):
            raise ConfigurationError(f"prefetch must be a whole number, 0 or more, or None, got {self.prefetch!r}")
        if not _is_seconds(self.grace_seconds):
            raise ConfigurationError(f"grace_seconds must be a number of seconds, got {self.grace_seconds!r}")


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
