"""The settings of a queue, validated in one place: arguments first, then the environment, then defaults."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Self

from tasklib.core.database_url import plain_url
from tasklib.core.numbers import is_number, is_whole
from tasklib.core.redaction import DEFAULT_KEYS
from tasklib.core.redaction import redact_url as redact_url
from tasklib.core.retention import is_retention
from tasklib.core.retry import RETRY_CAP_SECONDS, Backoff
from tasklib.errors import ConfigurationError

DEPLOYMENTS = (
    *("SENTRY_RELEASE", "HEROKU_SLUG_COMMIT", "RENDER_GIT_COMMIT", "RAILWAY_GIT_COMMIT_SHA", "K_REVISION"),
    *("SOURCE_VERSION", "GIT_COMMIT"),
)
"""Variables in which platforms give the release that is deployed, where `release` is not set."""


@dataclass(frozen=True, slots=True, repr=False)
class _Unset:
    """Stands for a setting that was not given, so that it differs from one given with its default's value."""

    default: Any

    def __repr__(self) -> str:
        return repr(self.default)


def _setting(default: Any, check: Callable[[Any], bool], rule: str) -> Any:
    return field(default=_Unset(default), metadata={"default": default, "check": check, "rule": rule})


def _number(value: Any) -> bool:
    return is_number(value) and -1e10 < value < 1e10


def _seconds(default: float | None) -> Any:
    rule = "a number of seconds above 0 and below 1e9" + (", or None" if default is None else "")
    return _setting(default, lambda v: _number(v) and 0 < v < 1e9, rule)


def _flag(default: bool) -> Any:
    return _setting(default, lambda v: isinstance(v, bool), "true or false")


def _bytes(default: int) -> Any:
    return _setting(default, lambda v: is_whole(v) and v > 0, "a whole number of bytes above 0")


def _is_schema_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value.encode(errors="replace")) < 64 and value.isprintable()


@dataclass(frozen=True, slots=True, repr=False)
class Config:
    """The settings of a queue; each field is also read from the environment as `TASKLIB_<FIELD>`.

    `database_url` is read from `TASKLIB_DATABASE_URL` or `DATABASE_URL` when it is not given.

    Examples:
        >>> config = Config("sqlite:///:memory:", max_retries=5, retention="completed=7d")
        >>> TaskQueue(config).config.max_retries
        5
    """

    database_url: str = _setting("", lambda v: isinstance(v, str), "a URL")
    max_retries: int = _setting(3, lambda v: is_whole(v) and 0 <= v < 2**31 - 1, "a whole number, 0 or more")
    base_retry_delay_seconds: float = _setting(5.0, lambda v: _number(v) and v >= 0, "a number of seconds, 0 or more")
    retry_backoff_multiplier: float = _setting(2.0, lambda v: _number(v) and v >= 1, "a number, 1 or more")
    lock_timeout_seconds: float = _seconds(600)
    default_task_timeout_seconds: float | None = _seconds(None)
    worker_id: str | None = _setting(
        None, lambda v: isinstance(v, str) and v != "" and v.isprintable(), "a non-empty string, or None"
    )
    max_retry_delay_seconds: float = _seconds(RETRY_CAP_SECONDS)
    retry_jitter: float = _setting(0.2, lambda v: _number(v) and 0 <= v < 1, "a fraction from 0 to below 1")
    worker_timeout_seconds: float = _seconds(30.0)
    heartbeat_interval_seconds: float = _seconds(5.0)
    poll_interval_seconds: float = _seconds(1.0)
    db_schema: str | None = _setting(None, _is_schema_name, "a PostgreSQL schema name, or None")
    auto_migrate: bool = _flag(True)
    pool_size: int = _setting(10, lambda v: is_whole(v) and v > 0, "a whole number above 0")
    connect_timeout_seconds: float = _seconds(10.0)
    busy_timeout_seconds: float = _seconds(10.0)
    max_payload_bytes: int = _bytes(1 << 20)
    max_result_bytes: int = _bytes(1 << 20)
    prepare_statements: bool | None = _setting(
        None, lambda v: isinstance(v, bool), "true, false, or None to prepare where sessions last"
    )
    listen_url: str | None = _setting(
        None, lambda v: isinstance(v, str) and v.lower().startswith("postgres"), "a PostgreSQL URL, or None"
    )

    retention: str = _setting(
        "",
        is_retention,
        "how long to keep finished tasks and facts, such as completed=7d, report:completed=forever, facts=90d",
    )
    redact_keys: str = _setting(DEFAULT_KEYS, lambda v: isinstance(v, str), "patterns of keys, separated by commas")
    release: str | None = _setting(
        None,
        lambda v: isinstance(v, str) and 0 < len(v) <= 200 and v.isprintable(),
        "a short name of a release, or None",
    )
    submit_rate_limit: float = _setting(0.0, lambda v: _number(v) and v >= 0, "a number of tasks a second, or 0")

    def __post_init__(self) -> None:
        self._read_url()
        for entry in fields(self):
            if isinstance(getattr(self, entry.name), _Unset):
                _set(self, entry.name, _from_environment(entry))
            _check(entry, getattr(self, entry.name))
        if self.release is None:
            _set(self, "release", (_first_set(*DEPLOYMENTS) or "").strip()[:200] or None)
        if self.listen_url is not None:
            _set(self, "listen_url", plain_url(self.listen_url, "listen_url")[0])
        if self.heartbeat_interval_seconds > self.worker_timeout_seconds / 2:
            _set(self, "heartbeat_interval_seconds", self.worker_timeout_seconds / 4)

    def __repr__(self) -> str:
        given = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        changed = {entry.name: given[entry.name] for entry in fields(self) if given[entry.name] != _default(entry)}
        texts = (f"{name}={_redacted(name, value)!r}" for name, value in changed.items())
        return f"Config({', '.join(texts)})"

    @classmethod
    def of(cls, value: str | Config | None = None) -> Config:
        """The configuration itself, or one made from a URL or from the environment alone."""
        return value if isinstance(value, Config) else cls(database_url=value or "")

    def with_(self, **changes: Any) -> Self:
        """A copy with some fields changed, validated again; a new URL's schema counts as a change.

        Examples:
            >>> Config("sqlite:///:memory:").with_(max_retries=1).max_retries
            1
        """
        url = changes.get("database_url")
        schema = plain_url(url)[1] if url else None
        return replace(self, **({"db_schema": schema} if schema else {}) | changes)

    @property
    def is_sqlite(self) -> bool:
        """True if the database is SQLite."""
        return self.database_url.startswith("sqlite:")

    @property
    def backoff(self) -> Backoff:
        """The retry policy these settings describe."""
        return Backoff(
            base=self.base_retry_delay_seconds,
            multiplier=self.retry_backoff_multiplier,
            cap=self.max_retry_delay_seconds,
            jitter=self.retry_jitter,
        )

    def _read_url(self) -> None:
        """Find the URL, check its form, and move its `schema`, which libpq would refuse, to `db_schema`."""
        url = _given(self.database_url) or _first_set("TASKLIB_DATABASE_URL", "DATABASE_URL")
        if not url:
            raise ConfigurationError(
                "no database is configured: pass database_url= or set DATABASE_URL, "
                "for example sqlite:///tasks.db or postgresql://localhost/app"
            )
        if not isinstance(url, str):
            raise ConfigurationError(f"database_url must be a string, got {url!r}")
        # A blank at either end comes from a .env file or a shell; libpq recognises no URL that begins with one.
        url, schema = plain_url(url.strip())
        if schema is not None:
            if url.startswith("sqlite"):
                raise ConfigurationError(
                    "SQLite has no schemas: remove ?schema= from the database_url, or use another file"
                )
            _set(self, "db_schema", _given(self.db_schema) or schema)
        _set(self, "database_url", url)


def environment_names() -> Mapping[str, str]:
    """Field name → environment variable, for the docs."""
    return {entry.name: f"TASKLIB_{entry.name.upper()}" for entry in fields(Config)}


def _set(config: Config, name: str, value: Any) -> None:
    object.__setattr__(config, name, value)


def _given(value: Any) -> Any:
    return None if isinstance(value, _Unset) else value


def _default(entry: Field[Any]) -> Any:
    return entry.metadata["default"]


def _redacted(name: str, value: Any) -> Any:
    return redact_url(value) if name.endswith("_url") and value else value


def _first_set(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _from_environment(entry: Field[Any]) -> Any:
    variable = f"TASKLIB_{entry.name.upper()}"
    text = _first_set(variable)
    if text is None:
        return _default(entry)
    kind = str(entry.type)
    try:
        if kind.startswith("bool"):
            return _FLAGS[text.strip().lower()]
        if kind == "int":
            return int(text)
        return float(text) if kind.startswith("float") else text
    except (ValueError, KeyError) as error:
        raise ConfigurationError(f"{variable}={text!r} is not {entry.metadata['rule']}") from error


_FLAGS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def _check(entry: Field[Any], value: Any) -> None:
    if value is None and _default(entry) is None:
        return
    if not entry.metadata["check"](value):
        raise ConfigurationError(f"{entry.name} must be {entry.metadata['rule']}, got {value!r}")
