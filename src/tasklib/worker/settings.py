"""The settings of a worker, validated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from tasklib.core.limits import LocalLimits
from tasklib.core.numbers import is_number, is_whole
from tasklib.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The settings of one worker; those shared by all workers of a queue are in its `Config`."""

    concurrency: int = 1
    """Tasks that run at once."""
    poll_interval_seconds: float = 1.0
    """The longest time between two polls of an idle worker."""
    prefetch: int | None = None
    """Tasks claimed ahead; None lets the measured durations decide."""
    grace_seconds: float = 30.0
    """How long running tasks may go on after the worker was asked to stop."""
    batch_size: int | None = None
    """Tasks claimed at once, at most; None lets free slots and prefetch decide."""
    limits: LocalLimits = field(default_factory=LocalLimits)
    """Limits of this worker alone; they may be changed while it runs."""
    only: tuple[str, ...] = ()
    """Patterns such as `email.*`; with any, only tasks whose name matches one are claimed."""
    max_stuck_threads: int = 10
    """With this many threads that never came back, the worker drains and ends with WorkerStuck."""
    max_tasks_per_child: int = 10_000
    """A child process is replaced after so many tasks, in case they leak memory."""
    memory_limit_mb: int | None = None
    """MiB that a child process may use, for tasks without a limit of their own; None: no limit."""
    modules: tuple[str, ...] = ()
    """Modules that a child process imports beside those of its tasks: where handlers and hooks are registered."""
    executor: str | None = None
    """The cluster engine, "dask" or "ray", that runs all tasks which can be loaded there; None: only those that ask."""
    scheduler: str | None = None
    """The engine's address, in its own form, such as tcp://10.0.0.1:8786; None: as in the engine's own settings."""
    signals: bool = True
    """Whether SIGTERM and SIGINT stop the worker."""

    def __post_init__(self) -> None:
        for name, (fits, rule) in _RULES.items():
            value = getattr(self, name)
            if not fits(value):
                raise ConfigurationError(f"{name} must be {rule}, got {value!r}")
        if self.scheduler is not None and self.executor is None:
            raise ConfigurationError(f"scheduler is the address of an executor: give that too, got {self.scheduler!r}")

    def wants(self, name: str) -> bool:
        """Whether this worker runs tasks of the name."""
        return not self.only or any(fnmatchcase(name, pattern) for pattern in self.only)


def _is_count(value: Any, least: int) -> bool:
    return is_whole(value) and value >= least


def _is_seconds(value: Any) -> bool:
    return is_number(value) and 0 <= value < 1e9


def _are_names(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(each, str) and each for each in value)


_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "concurrency": (lambda v: _is_count(v, 1), "a whole number, 1 or more"),
    "poll_interval_seconds": (lambda v: _is_seconds(v) and v > 0, "a number of seconds above 0"),
    "prefetch": (lambda v: v is None or _is_count(v, 0), "a whole number, 0 or more, or None"),
    "batch_size": (lambda v: v is None or _is_count(v, 1), "a whole number, 1 or more, or None"),
    "grace_seconds": (_is_seconds, "a number of seconds, 0 or more"),
    "only": (_are_names, "a tuple of name patterns"),
    "max_stuck_threads": (lambda v: _is_count(v, 1), "a whole number, 1 or more"),
    "max_tasks_per_child": (lambda v: _is_count(v, 1), "a whole number, 1 or more"),
    "memory_limit_mb": (lambda v: v is None or _is_count(v, 1), "a whole number of MiB, 1 or more, or None"),
    "modules": (_are_names, "a tuple of module names"),
    "executor": (lambda v: v in (None, "dask", "ray"), '"dask", "ray", or None'),
    "scheduler": (lambda v: v is None or (isinstance(v, str) and v != ""), "an address, or None"),
    "signals": (lambda v: isinstance(v, bool), "true or false"),
}
