"""Pauses and limits of names: stored, so that they hold across restarts and machines."""

from __future__ import annotations

from collections.abc import Mapping

from tasklib.core.codec import dumps, loads
from tasklib.core.limits import Limit, Pause
from tasklib.storage.rows import required_moment
from tasklib.storage.statement import BEGIN, Operation, Row, Statement

EVERYTHING = ""
"""The name under which the whole queue is paused."""


def pause(name: str | None, *, by: str | None, reason: str | None) -> Operation[None]:
    """Stop starting tasks of one name, or of all; running ones finish."""
    yield Statement("pause", {"name": name or EVERYTHING, "by": by, "reason": reason})


def resume(name: str | None) -> Operation[bool]:
    """Start tasks again; False if nothing was paused under that name."""
    yield BEGIN
    return bool((yield Statement("resume", {"name": name or EVERYTHING})))


def list_pauses() -> Operation[list[Pause]]:
    """What is paused now."""
    return [
        Pause(row["name"] or None, required_moment(row["paused_at"]), row["paused_by"], row["reason"])
        for row in (yield Statement("list_pauses"))
    ]


def set_rate(name: str | None, tasks_per_second: float | None, *, burst: float | None = None) -> Operation[None]:
    """Let at most so many tasks start in a second, over all workers; None lifts the limit."""
    yield Statement("set_rate", {"name": name or EVERYTHING, "rate": tasks_per_second, "burst": burst})


def set_max_running(name: str | None, count: int | None) -> Operation[None]:
    """Let at most so many tasks run at once, over all workers; None lifts the limit."""
    yield Statement("set_max_running", {"name": name or EVERYTHING, "count": count})


def declare_limits(declared: Mapping[str, Mapping[str, float] | None]) -> Operation[list[str]]:
    """Store what the code of tasks declares, by name, where that has changed; returns the names.

    What people have set since the declaration was last stored holds until it changes.
    """
    limits = [{"name": name, "declared": each} for name, each in declared.items()]
    return [row["name"] for row in (yield Statement("declare_limits", {"limits": dumps(limits)}))]


def list_limits() -> Operation[list[Limit]]:
    """The limits in force."""
    return [limit_from_row(row) for row in (yield Statement("list_limits"))]


def limit_from_row(row: Row) -> Limit:
    """The limit of a row, its tokens rounded to what both databases can represent."""
    tokens, declared = row["tokens"], row["declared"]
    return Limit(
        row["name"] or None,
        row["rate"],
        row["max_running"],
        None if tokens is None else round(tokens, 4),
        row["burst"],
        None if declared is None else loads(declared),
    )
