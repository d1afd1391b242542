"""Values as people type them: durations, moments, JSON, and name=value pairs.  Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from tasklib.cli.exit_codes import CommandFailed, Exit

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
SIZES = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0**2}
"""In MiB."""
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?(?:([kmgt])(?:i?b)?)?", re.IGNORECASE)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|min|s|m|h|d|w)?", re.IGNORECASE)


class BadValue(CommandFailed):
    """A value that cannot be understood."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Exit.USAGE)


def duration(text: str) -> timedelta:
    """`90`, `90s`, `1.5h`, `1h30m`, `30d`: a time span; seconds where no unit is given."""
    compact = text.replace(" ", "")
    parts = list(_PART.finditer(compact))
    alone = len(parts) == 1
    if not parts or "".join(p[0] for p in parts) != compact or any(not p[2] and not alone for p in parts):
        raise BadValue(f"{text!r} is not a duration; write 90s, 15m, 12h, 30d, 2w or 1h30m")
    try:
        return timedelta(seconds=sum(float(p[1]) * UNITS[(p[2] or "s").lower()] for p in parts))
    except OverflowError:
        raise BadValue(f"{text!r} is too long a duration") from None


def mebibytes(text: str) -> int:
    """`300`, `300M`, `300MB`, `1.5GiB`: whole MiB, at least one; MB is taken for MiB, as the kernel counts."""
    found = _SIZE.fullmatch(text.strip())
    size = math.ceil(float(found[1]) * SIZES[(found[2] or "m").lower()]) if found else 0
    if size < 1:
        raise BadValue(f"{text!r} is not an amount of memory; write 300 or 300M for 300 MiB, or 2G for 2048 MiB")
    return size


def moment(text: str) -> datetime:
    """An ISO-8601 time; without a zone it is this machine's local time."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise BadValue(f"{text!r} is not a time; write 2030-01-31T09:00 or 2030-01-31T09:00:00Z") from None


def duration_or_moment(text: str) -> datetime | timedelta:
    """A time span from now, which must name its unit, or a moment.

    These decide what is deleted and how long a token holds: who writes 30 means days, and 30 seconds would be wrong.
    """
    if re.match(r"\d{4}-\d\d-\d\d", text):
        return moment(text)
    span = duration(text)
    if span and re.fullmatch(r"[\d. ]+", text):
        raise BadValue(f"{text!r} has no unit; write {text}d for days, {text}h for hours or {text}s for seconds")
    return span


def json_value(text: str, what: str) -> Any:
    """A JSON document."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise BadValue(f"{what} is not JSON: {error}") from None
    except RecursionError:
        raise BadValue(f"{what} is nested too deeply") from None


def loose_value(text: str) -> Any:
    """JSON where it is JSON (5, true, null, "5", [1, 2]), and else the text itself."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text


def pairs(texts: Iterable[str], what: str) -> dict[str, Any]:
    """`name=value` pairs; each value as `loose_value` reads it."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise BadValue(f"{what} {text!r} is not name=value")
        if name in found:
            raise BadValue(f"{what} {name!r} is given twice")
        found[name] = loose_value(value)
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
