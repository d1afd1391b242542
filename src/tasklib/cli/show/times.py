"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

_STEPS = ((60.0, 1.0, "s"), (3600.0, 60.0, "min"), (86400.0 * 2, 3600.0, "h"), (float("inf"), 86400.0, "d"))


def span(seconds: float) -> str:
    """A time span in its largest fitting unit: `0.12 s`, `42 s`, `3 min`, `5 h`, `12 d`."""
    seconds = abs(seconds)
    if seconds < 0.0005:
        return "0 s"
    if seconds < 10:
        return f"{seconds:.3g} s" if seconds < 1 else f"{seconds:.1f} s"
    for below, unit, name in _STEPS:
        if seconds < below:
            return f"{seconds / unit:.0f} {name}"
    raise AssertionError("infinity is below nothing")


def exact(seconds: float) -> str:
    """A time span to the last second: `0.5 s`, `1 min 30 s`, `36 h`."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    parts = [f"{hours} h" if hours else "", f"{minutes} min" if minutes else "", f"{rest:g} s" if rest else ""]
    return " ".join(part for part in parts if part) or "0 s"


def ago(moment: datetime, now: datetime) -> str:
    """`3 min ago`, `in 42 s` or `now`."""
    seconds = (moment - now).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"in {span(seconds)}" if seconds > 0 else f"{span(seconds)} ago"


def clock(moment: datetime) -> str:
    """A moment in UTC, to the millisecond."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}Z"
