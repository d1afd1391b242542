"""The settings of a queue, validated in one place: arguments first, then the environment, then defaults."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tasklib.errors import ConfigurationError
from tasklib.retry import RETRY_CAP_SECONDS, Backoff

SCHEMES = ("postgresql", "postgres", "sqlite")


def _setting(default: Any, check: Callable[[Any], bool], rule: str) -> Any:
    return field(default=default, metadata={"check": check, "rule": rule})


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _not_negative(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@dataclass(frozen=True, slots=True, repr=False)
class Config:
    """Everything a queue can be told; each field is also read from the environment as `TASKLIB_<FIELD>`.

    `database_url` is read from `TASKLIB_DATABASE_URL` or `DATABASE_URL` when it is not given.
    """

    database_url: str = ""
    max_retries: int = _setting(3, _whole, "a whole number, 0 or more")
    base_retry_delay_seconds: float = _setting(5.0, _not_negative, "a number of seconds, 0 or more")
    retry_backoff_multiplier: float = _setting(2.0, lambda v: _positive(v) and v >= 1, "a number, 1 or more")
    lock_timeout_seconds: float = _setting(600, _positive, "a number of seconds above 0")
    default_task_timeout_seconds: float | None = _setting(None, _positive, "a number of seconds above 0, or None")
    worker_id: str | None = _setting(None, lambda v: isinstance(v, str) and v != "", "a non-empty string, or None")
    max_retry_delay_seconds: float = _setting(RETRY_CAP_SECONDS, _positive, "a number of seconds above 0")
    retry_jitter: float = _setting(0.2, lambda v: _not_negative(v) and v < 1, "a fraction from 0 to below 1")
    worker_timeout_seconds: float = _setting(30.0, _positive, "a number of seconds above 0")
    heartbeat_interval_seconds: float = _setting(5.0, _positive, "a number of seconds above 0")
    poll_interval_seconds: float = _setting(1.0, _positive, "a number of seconds above 0")
    db_schema: str | None = _setting(
        None, lambda v: isinstance(v, str) and 0 < len(v.encode()) < 64 and "\0" not in v, "a PostgreSQL schema name"
    )
    auto_migrate: bool = _setting(True, lambda v: isinstance(v, bool), "true or false")
    pool_size: int = _setting(10, lambda v: _whole(v) and v > 0, "a whole number above 0")
    connect_timeout_seconds: float = _setting(10.0, _positive, "a number of seconds above 0")
    busy_timeout_seconds: float = _setting(10.0, _positive, "a number of seconds above 0")
    max_payload_bytes: int = _setting(1 << 20, lambda v: _whole(v) and v > 0, "a whole number of bytes above 0")
    max_result_bytes: int = _setting(1 << 20, lambda v: _whole(v) and v > 0, "a whole number of bytes above 0")
    prepare_statements: bool = _setting(True, lambda v: isinstance(v, bool), "true or false")
    listen_url: str | None = _setting(None, lambda v: isinstance(v, str) and v != "", "a PostgreSQL URL, or None")

    def __repr__(self) -> str:
        changed = [f"{e.name}={getattr(self, e.name)!r}" for e in fields(self) if getattr(self, e.name) != e.default]
        return f"Config({', '.join(changed)})".replace(self.database_url, redact_url(self.database_url))

    def __post_init__(self) -> None:
        for entry in fields(self):
            if _is_default(entry, getattr(self, entry.name)):
                _set(self, entry.name, _from_environment(entry))
        _set(self, "database_url", self.database_url or os.environ.get("DATABASE_URL", ""))
        self._read_url()
        for entry in fields(self):
            _check(entry, getattr(self, entry.name))
        if self.heartbeat_interval_seconds > self.worker_timeout_seconds / 2:
            _set(self, "heartbeat_interval_seconds", self.worker_timeout_seconds / 4)

    @classmethod
    def of(cls, value: str | Config | None = None) -> Config:
        """The configuration itself, or one made from a URL or from the environment alone."""
        return value if isinstance(value, Config) else cls(database_url=value or "")

    def with_(self, **changes: Any) -> Self:
        """A copy with some fields changed, validated again."""
        return replace(self, **changes)

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
        """Check the URL's form and move its `schema` parameter, which PostgreSQL would refuse, to `db_schema`."""
        if not self.database_url:
            raise ConfigurationError(
                "no database is configured: pass database_url= or set DATABASE_URL, "
                "for example sqlite:///tasks.db or postgresql://localhost/app"
            )
        if not isinstance(self.database_url, str):
            raise ConfigurationError(f"database_url must be a string, got {self.database_url!r}")
        parts = urlsplit(self.database_url)
        if parts.scheme not in SCHEMES:
            raise ConfigurationError(
                f"database_url must start with postgresql:// or sqlite:///, got {redact_url(self.database_url)!r}"
            )
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        schema = query.pop("schema", None)
        if schema is None:
            return
        if parts.scheme == "sqlite":
            raise ConfigurationError("SQLite has no schemas: remove ?schema= from the database_url, or use another file")
        rest = "?" + urlencode(query) if query else ""
        _set(self, "database_url", self.database_url.partition("?")[0] + rest)
        _set(self, "db_schema", self.db_schema or schema)


def redact_url(url: str) -> str:
    """The URL with its password hidden, fit for a message or a log."""
    parts = urlsplit(url)
    if not parts.password:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":***@")))


def environment_names() -> Mapping[str, str]:
    """Field name → environment variable, for the docs."""
    return {entry.name: f"TASKLIB_{entry.name.upper()}" for entry in fields(Config)}


def _set(config: Config, name: str, value: Any) -> None:
    object.__setattr__(config, name, value)


def _is_default(entry: Field[Any], value: Any) -> bool:
    return entry.default is not MISSING and value == entry.default and type(value) is type(entry.default)


def _from_environment(entry: Field[Any]) -> Any:
    text = os.environ.get(f"TASKLIB_{entry.name.upper()}")
    if text is None:
        return entry.default
    kind = str(entry.type)
    try:
        if "bool" in kind:
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[text.lower()]
        if kind.startswith("int"):
            return int(text)
        return float(text) if kind.startswith("float") else text
    except (ValueError, KeyError) as error:
        raise ConfigurationError(
            f"TASKLIB_{entry.name.upper()}={text!r} is not {entry.metadata.get('rule', kind)}"
        ) from error


def _check(entry: Field[Any], value: Any) -> None:
    if "check" not in entry.metadata or (value is None and entry.default is None):
        return
    if not entry.metadata["check"](value):
        raise ConfigurationError(f"{entry.name} must be {entry.metadata['rule']}, got {value!r}")
