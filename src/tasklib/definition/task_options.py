"""How a task is run: retries, timeout, isolation and the rest, checked when it is declared."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, Self, TypeAlias, TypedDict, cast, get_args

from tasklib.core.codec import plain, shown
from tasklib.core.numbers import is_number, is_whole
from tasklib.core.retry import RetryPolicy
from tasklib.core.texts.suggestion import did_you_mean
from tasklib.errors import Abort, ConfigurationError, InvalidPayload, ResultError

Isolation: TypeAlias = Literal["auto", "thread", "process"]
"""Where the function runs; "auto" is the event loop for `async def` and a thread for `def`."""

MAX_NAME_LENGTH: Final = 255
MAX_KEY_LENGTH: Final = 500
MAX_KEY_BYTES: Final = 1500
"""Of UTF-8: an entry of a PostgreSQL index holds 2,704 bytes, and a name has up to four for each character."""
KEY_RULE: Final = (
    f"a non-empty Unicode string of at most {MAX_KEY_LENGTH} characters and {MAX_KEY_BYTES} bytes of UTF-8"
)
MAX_INTEGER: Final = 2**31 - 1
"""The largest value of an integer column."""

RESERVED_OPTIONS: Final = frozenset({"delay_seconds", "max_retries", "timeout_seconds", "priority", "tags"})
"""Options that `submit_task` takes itself; for a parameter of such a name use `.options()`."""

_NAMED = re.compile(r"\{(\w+)\}")


class TaskKeywords(TypedDict, total=False):
    """The fields of TaskOptions as keyword arguments, in every form a decorator takes them."""

    max_retries: int | None
    timeout_seconds: float | None
    priority: int
    tags: Mapping[str, Any]
    retry_on: type[BaseException] | Collection[type[BaseException]] | None
    abort_on: type[BaseException] | Collection[type[BaseException]]
    retry_policy: RetryPolicy | None
    isolation: Isolation
    memory_limit_mb: int | None
    transactional: bool
    executor: Literal["ray", "dask"] | None
    resources: Mapping[str, Any]
    aliases: str | Collection[str]
    max_concurrency: int | None
    concurrency_key: str | None
    rate: float | None
    burst: float | None
    max_running: int | None
    expires_after: float | None
    lifetime_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """The options of a task, each valid; None leaves the choice to the configuration."""

    max_retries: int | None = None
    timeout_seconds: float | None = None
    priority: int = 0
    tags: Mapping[str, Any] = field(default_factory=dict)
    retry_on: tuple[type[BaseException], ...] | None = None
    """Only these errors are retried; None: all but `abort_on`."""
    abort_on: tuple[type[BaseException], ...] = ()
    """These errors are final, whatever attempts remain."""
    retry_policy: RetryPolicy | None = None
    isolation: Isolation = "auto"
    memory_limit_mb: int | None = None
    """MiB that its child process may use, with `isolation="process"`; None: the worker's setting."""
    transactional: bool = False
    executor: Literal["ray", "dask"] | None = None
    """The cluster engine that runs the body; None: this worker, unless it runs with `--executor`."""
    resources: Mapping[str, Any] = field(default_factory=dict)
    """What the engine must give it, in the engine's own words."""
    aliases: tuple[str, ...] = ()
    """Former names under which rows may still wait."""
    max_concurrency: int | None = None
    """How many may run at once in one worker."""
    concurrency_key: str | None = None
    """`{tenant}` in it stands for the tag or the argument of that name."""
    rate: float | None = None
    """How many may start in a second over all workers."""
    burst: float | None = None
    """How many may start at once after a quiet time; one second's worth, and at least one, if not given."""
    max_running: int | None = None
    """How many may run at once over all workers."""
    expires_after: float | None = None
    """Seconds after which a task that has not started is cancelled."""
    lifetime_seconds: float | None = None
    """Seconds from when it was due first, after which it fails for good, also if it waits or was retried meanwhile."""

    def __post_init__(self) -> None:
        for name, normalize in _NORMALIZED.items():
            object.__setattr__(self, name, normalize(getattr(self, name)))
        for name, (check, rule) in _RULES.items():
            value = getattr(self, name)
            if not check(value):
                raise ConfigurationError(f"{name} must be {rule}, got {shown(value)}")
        if self.burst is not None and self.rate is None:
            raise ConfigurationError(f"burst needs a rate: give rate too, got burst={self.burst}")
        self._check_executor()

    def _check_executor(self) -> None:
        if self.resources and self.executor is None:
            raise ConfigurationError(f"resources need an executor: give executor too, got resources={self.resources!r}")
        if self.executor is not None and self.transactional:
            raise ConfigurationError(
                f"executor={self.executor!r} cannot be transactional: a connection stays in its process; write results "
                "with ctx.fencing_token, or leave out one of the two"
            )
        if self.executor is not None and self.isolation != "auto":
            raise ConfigurationError(
                f"executor={self.executor!r} has processes of its own: leave out isolation, got {self.isolation!r}"
            )

    @classmethod
    def for_task(cls, task: str, **given: Any) -> Self:
        """The options given to a task; one that is unknown or cannot work is an error that names the task."""
        known = [entry.name for entry in fields(cls)]
        for name in given:
            if name not in known:
                hint = did_you_mean(name, known, otherwise=f"the options are {', '.join(known)}", written="'{}'")
                raise ConfigurationError(f"task {task!r} has no option {name!r}; {hint}")
        try:
            return cls(**given)
        except ConfigurationError as error:
            raise ConfigurationError(f"task {task!r}: {error}") from error.__cause__

    def retries(self, error: BaseException) -> bool:
        """Whether an attempt that ended in this error may be repeated, as far as its kind decides."""
        if isinstance(error, (Abort, ResultError, *self.abort_on)):
            return False
        return self.retry_on is None or isinstance(error, self.retry_on)

    @property
    def declared_limits(self) -> Mapping[str, float] | None:
        """The limits over all workers that the task declares; None if it declares none."""
        given = {name: getattr(self, name) for name in ("rate", "burst", "max_running")}
        return {name: value for name, value in given.items() if value is not None} or None

    @property
    def for_rows(self) -> Mapping[str, Any]:
        """What a row takes from it when it is stored, as JSON: a worker that claims it could not add these any more."""
        given = {name: getattr(self, name) for name in _OF_ROWS}
        return {name: value for name, value in given.items() if value != getattr(NO_TASK_OPTIONS, name)}

    @classmethod
    def of_rows(cls, stored: Mapping[str, Any]) -> Self:
        """The options that `for_rows` gave; those of a newer version, which are not known here, are left out."""
        return cls(**{name: stored[name] for name in _OF_ROWS if name in stored})

    def key_names(self) -> Sequence[str]:
        """The tags or arguments that its concurrency key is made of."""
        return _NAMED.findall(self.concurrency_key or "")

    def key_for(self, task: str, tags: Mapping[str, Any], arguments: Any) -> str | None:
        """The concurrency key of a task with these tags and arguments; none, with a warning, if one is missing."""
        key = self.concurrency_key
        if key is None or not _NAMED.search(key):
            return key
        named = {**arguments, **tags} if isinstance(arguments, dict) else tags
        missing = [name for name in self.key_names() if not _is_part(named.get(name))]
        if missing:
            warnings.warn(
                f"a task {task!r} is stored without its concurrency key {key!r}, and so without that limit: "
                f"{', '.join(missing)} is given neither as an argument nor as a tag (a text or a number)",
                RuntimeWarning,
                stacklevel=2,
            )
            return None
        made = _NAMED.sub(lambda found: str(named[found[1]]), key)
        if not is_key(made):
            raise ConfigurationError(f"the concurrency key of {task!r} is not {KEY_RULE}: {shown(made)}")
        return made


_OF_ROWS: Final = ("priority", "tags", "concurrency_key", "expires_after")


def check_name(name: Any, *, what: str = "a task's name") -> str:
    """The name itself, if it can be stored, and a person can distinguish it from others."""
    if not isinstance(name, str) or not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        rule = f"a string of 1 to {MAX_NAME_LENGTH} printable characters"
        named = getattr(name, "name", None)
        hint = f"; write {named!r}" if isinstance(named, str) else ""
        raise ConfigurationError(f"{what} must be {rule}, got {shown(name)}{hint}")
    if name != name.strip():
        raise ConfigurationError(f"{what} must not begin or end with a space, got {name!r}")
    return name


def is_key(value: Any) -> bool:
    """Whether it can be a unique or concurrency key: a text that fits into an index beside the longest name."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_KEY_LENGTH or "\0" in value:
        return False
    if value.isascii():
        return True
    is_whole = not any("\ud800" <= character <= "\udfff" for character in value)
    return is_whole and len(value.encode()) <= MAX_KEY_BYTES


def _as_errors(value: Any) -> Any:
    if isinstance(value, type):
        return (value,)
    return tuple(cast("Iterable[Any]", value)) if isinstance(value, list | set | frozenset) else value


def _as_aliases(value: Any) -> Any:
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, tuple | list | set | frozenset):
        return value
    return tuple(check_name(alias, what="an alias") for alias in cast("Iterable[Any]", value))


def _as_tags(value: Any) -> Any:
    if value == {}:
        return {}
    try:
        return plain(value, what="tags")
    except InvalidPayload as error:
        raise ConfigurationError(f"tags must be JSON: {'; '.join(error.problems)}") from error


def _is_whole(value: Any, least: int, most: int = MAX_INTEGER) -> bool:
    return is_whole(value) and least <= value <= most


def _is_part(value: Any) -> bool:
    """Whether it can be a part of a key."""
    return isinstance(value, str | int | float) and value != ""


def _is_number(value: Any, least: float) -> bool:
    return is_number(value) and least <= value < 1e9


def _is_seconds(value: Any) -> bool:
    return is_number(value) and 0 < value < 1e9


def _are_errors(value: Any) -> bool:
    if not isinstance(value, tuple):
        return False
    members: tuple[Any, ...] = value
    return all(isinstance(member, type) and issubclass(member, BaseException) for member in members)


_NORMALIZED: Final[Mapping[str, Callable[[Any], Any]]] = {
    "tags": _as_tags,
    "retry_on": _as_errors,
    "abort_on": _as_errors,
    "aliases": _as_aliases,
}

_RULES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "max_retries": (
        lambda v: v is None or _is_whole(v, 0, MAX_INTEGER - 1),
        "a whole number, 0 or more, or None for the configured default",
    ),
    "timeout_seconds": (
        lambda v: v is None or _is_seconds(v),
        "a number of seconds above 0 and below 1e9, or None for the configured default",
    ),
    "priority": (lambda v: _is_whole(v, -MAX_INTEGER), "a whole number, higher runs first"),
    "tags": (lambda v: isinstance(v, dict), "a mapping of names to JSON values"),
    "retry_on": (lambda v: v is None or _are_errors(v), "exception classes, or None for all"),
    "abort_on": (_are_errors, "exception classes"),
    "retry_policy": (lambda v: v is None or callable(v), "a callable (retry_count, error) -> seconds, or None"),
    "isolation": (lambda v: v in get_args(Isolation), 'one of "auto", "thread", "process"'),
    "memory_limit_mb": (lambda v: v is None or _is_whole(v, 1), "a whole number of MiB, 1 or more, or None"),
    "transactional": (lambda v: isinstance(v, bool), "True or False"),
    "executor": (lambda v: v in (None, "ray", "dask"), '"ray", "dask", or None'),
    "resources": (lambda v: isinstance(v, dict), "a mapping of names to what the engine accepts"),
    "aliases": (lambda v: isinstance(v, tuple), "a tuple of names"),
    "max_concurrency": (lambda v: v is None or _is_whole(v, 1), "a whole number, 1 or more, or None for no limit"),
    "concurrency_key": (lambda v: v is None or (is_key(v) and v.isprintable()), f"{KEY_RULE}, or None"),
    "rate": (lambda v: v is None or _is_number(v, 1e-6), "a number of tasks per second above 0, or None for no limit"),
    "burst": (lambda v: v is None or _is_number(v, 1), "a number of tasks, 1 or more, or None for one second's worth"),
    "max_running": (lambda v: v is None or _is_whole(v, 1), "a whole number, 1 or more, or None for no limit"),
    "expires_after": (
        lambda v: v is None or _is_seconds(v),
        "a number of seconds above 0 and below 1e9, or None for never",
    ),
    "lifetime_seconds": (
        lambda v: v is None or _is_seconds(v),
        "a number of seconds above 0 and below 1e9, or None for no end",
    ),
}

NO_TASK_OPTIONS: Final = TaskOptions()
"""The options of a task that is not defined here.  Made and checked once."""
