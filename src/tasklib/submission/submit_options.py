"""The options of one submission, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict
from uuid import UUID

from tasklib.core.numbers import is_number, is_whole
from tasklib.core.task import OnConflict
from tasklib.core.time.clock import require_storable
from tasklib.definition import KEY_RULE, is_key
from tasklib.errors import ConfigurationError, seconds_of


class SubmitKeywords(TypedDict, total=False):
    """The fields of SubmitOptions as keyword arguments, so that a type checker finds a misspelt one."""

    delay_seconds: float | timedelta
    run_at: datetime | None
    priority: int | None
    tags: Mapping[str, Any] | None
    max_retries: int | None
    timeout_seconds: float | None
    unique_key: str | None
    on_conflict: OnConflict
    concurrency_key: str | None
    headers: Mapping[str, Any]
    expires_at: datetime | None
    id: UUID | None
    connection: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions:
    """The options of one submission beside its arguments; None leaves it to the task or the configuration."""

    delay_seconds: float | timedelta = 0.0
    run_at: datetime | None = None
    priority: int | None = None
    tags: Mapping[str, Any] | None = None
    max_retries: int | None = None
    timeout_seconds: float | None = None
    unique_key: str | None = None
    on_conflict: OnConflict = "return"
    concurrency_key: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    expires_at: datetime | None = None
    id: UUID | None = None
    connection: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "delay_seconds", seconds_of(self.delay_seconds))
        for name, (fits, rule) in _RULES.items():
            value = getattr(self, name)
            if value is not None and not fits(value):
                raise ConfigurationError(f"{name} must be {rule}, got {value!r}")
        for name in ("run_at", "expires_at"):
            moment = getattr(self, name)
            if moment is not None:
                require_storable(moment, name)
        if self.run_at is not None and self.delay_seconds:
            raise ConfigurationError("give either delay_seconds or run_at, not both")

    def with_(self, **changes: Any) -> SubmitOptions:
        """A copy with some options changed; an unknown one is an error that lists the known ones."""
        if not changes:
            return self
        known = {entry.name for entry in fields(self)}
        unknown = sorted(set(changes) - known)
        if unknown:
            meant = "".join(f"; {name} is called {ELSEWHERE[name]} here" for name in unknown if name in ELSEWHERE)
            meant += ", which counts those after the first" if unknown == ["max_attempts"] else ""
            raise ConfigurationError(
                f"no such option: {', '.join(unknown)}{meant}; the options are {', '.join(sorted(known))}"
            )
        return replace(self, **changes)


def meant_option(name: str) -> str | None:
    """The option that an argument of this name was probably meant as, if any."""
    return name if name in SubmitKeywords.__annotations__ else ELSEWHERE.get(name)


ELSEWHERE: Final[Mapping[str, str]] = {
    "countdown": "delay_seconds",
    "delay": "delay_seconds",
    "eta": "run_at",
    "run_after": "run_at",
    "schedule_at": "run_at",
    "expires": "expires_at",
    "retries": "max_retries",
    "max_attempts": "max_retries",
    "timeout": "timeout_seconds",
    "lock": "concurrency_key",
    "queueing_lock": "unique_key",
    "task_id": "id",
}
"""What other task queues, or other parts of this one, call an option."""


def _is_integer(value: Any) -> bool:
    return is_whole(value) and -(2**31) <= value < 2**31


_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "run_at": (lambda v: isinstance(v, datetime), "a datetime with a time zone"),
    "expires_at": (lambda v: isinstance(v, datetime), "a datetime with a time zone"),
    "priority": (_is_integer, "a whole number that fits 32 bits"),
    "tags": (lambda v: isinstance(v, Mapping), "a mapping of names to JSON values"),
    "max_retries": (lambda v: _is_integer(v) and v >= 0, "a whole number, 0 or more, that fits 32 bits"),
    "timeout_seconds": (lambda v: is_number(v) and 0 < v < 1e9, "a number of seconds above 0 and below 1e9"),
    "unique_key": (is_key, KEY_RULE),
    "on_conflict": (lambda v: v in ("return", "raise", "replace"), "'return', 'raise' or 'replace'"),
    "concurrency_key": (is_key, KEY_RULE),
    "headers": (lambda v: isinstance(v, Mapping), "a mapping of names to JSON values"),
    "id": (lambda v: isinstance(v, UUID), "a UUID"),
}

NO_OPTIONS: Final = SubmitOptions()
"""The options of most submissions.  Made and checked once."""
