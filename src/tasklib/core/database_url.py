"""The URL of a database, read as libpq reads it: it may name several hosts, and hold characters that other URLs may
not."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote

from tasklib.core.redaction import redact_url
from tasklib.errors import ConfigurationError

_KINDS: Final = {"postgresql": "postgresql", "postgres": "postgresql", "sqlite": "sqlite"}


def plain_url(url: str, setting: str = "database_url") -> tuple[str, str | None]:
    """The URL as libpq and SQLite take it, and the schema it named, which they would refuse.

    SQLAlchemy writes a driver into the scheme, as in `postgresql+psycopg://`, and several hosts as a `host=` each; the
    database is the same.

    Examples:
        >>> from tasklib.core.database_url import plain_url
        >>> plain_url("postgresql+psycopg://one,two/app?schema=jobs&target_session_attrs=read-write")
        ('postgresql://one,two/app?target_session_attrs=read-write', 'jobs')
    """
    scheme, _, rest = url.partition(":")
    kind = _KINDS.get(scheme.partition("+")[0].lower())
    if kind is None:
        raise ConfigurationError(f"{setting} must start with postgresql:// or sqlite:///, got {redact_url(url)!r}")
    start = _place_of_query(rest) if kind == "postgresql" else len(rest.partition("?")[0])
    place, query = rest[:start], rest[start + 1 :]
    if kind == "postgresql" and _has_open_bracket(place):
        raise ConfigurationError(f"{setting} {redact_url(url)!r} is not a URL: a [ has no ]")
    # Each parameter stays as it was written: libpq reads %20 as a space, but + as a plus.
    given = [(unquote(each.partition("=")[0]), each) for each in query.split("&") if each]
    schema = next((_value(text) for name, text in reversed(given) if name == "schema"), None)
    kept = [(name, text) for name, text in given if name != "schema"]
    texts = _with_one_list_of_hosts(kept) if kind == "postgresql" else [text for _, text in kept]
    return f"{kind}:{place}{'?' if texts else ''}{'&'.join(texts)}", schema


def _place_of_query(rest: str) -> int:
    """Where the question mark is before the parameters; libpq allows others in a password, before the first slash."""
    start = 2 if rest.startswith("//") else 0
    slash = rest.find("/", start)
    at = rest.find("@", start, len(rest) if slash < 0 else slash)
    mark = rest.find("?", max(start, at))
    return len(rest) if mark < 0 else mark


def _has_open_bracket(place: str) -> bool:
    """Whether the address of a host is not closed; in a password a bracket is a character like others."""
    hosts = place.removeprefix("//").partition("/")[0].rpartition("@")[2]
    return any(host.startswith("[") and "]" not in host for host in hosts.split(","))


def _with_one_list_of_hosts(given: list[tuple[str, str]]) -> list[str]:
    """The parameters with one `host` and one `port`: of several that say the same, libpq keeps the last alone."""
    hosts = [_value(text) for name, text in given if name == "host"]
    apart = [(match[1], match[2]) if (match := _HOST_AND_PORT.fullmatch(each)) else (each, "") for each in hosts]
    if len(hosts) < 2 and not any(port for _, port in apart):
        return [text for _, text in given]
    texts = [text for name, text in given if name != "host"]
    texts.append("host=" + ",".join(quote(host) for host, _ in apart))
    if any(port for _, port in apart):
        texts.append("port=" + ",".join(port for _, port in apart))
    return texts


def _value(text: str) -> str:
    return unquote(text.partition("=")[2])


_HOST_AND_PORT: Final = re.compile(r"([^:/,]*):([0-9]*)")
