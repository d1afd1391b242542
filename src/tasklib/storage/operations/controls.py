"""Pauses: stored, so that they hold across restarts and machines."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tasklib.storage.rows import moment
from tasklib.storage.statement import BEGIN, Operation, Statement

EVERYTHING = ""
"""The name under which the whole queue is paused."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Something that is paused, by whom, since when and why; `name` is None for the whole queue."""

    name: str | None
    since: datetime
    by: str | None
    reason: str | None


def pause(name: str | None, *, by: str | None, reason: str | None, now: datetime | None) -> Operation[None]:
    """Stop starting tasks of one name, or of all; running ones finish."""
    yield Statement("pause", {"name": name or EVERYTHING, "by": by, "reason": reason, "now": now})


def resume(name: str | None) -> Operation[bool]:
    """Start tasks again; False if nothing was paused under that name."""
    yield BEGIN
    return bool((yield Statement("resume", {"name": name or EVERYTHING})))


def list_pauses() -> Operation[list[Pause]]:
    """What is paused now."""
    rows = yield Statement("list_pauses")
    pauses = []
    for row in rows:
        since = moment(row["paused_at"])
        assert since is not None
        pauses.append(Pause(row["name"] or None, since, row["paused_by"], row["reason"]))
    return pauses
