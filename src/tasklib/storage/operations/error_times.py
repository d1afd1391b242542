"""When failures happened: by the hour, for the small charts beside their groups."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tasklib.storage.operations.errors import group_id
from tasklib.storage.statement import Operation, Statement

HOURS = 24


def count_errors_by_hour(now: datetime | None) -> Operation[Mapping[str, list[int]]]:
    """How often each group of errors happened in each of the last 24 hours, the oldest first, by the group's id."""
    found: dict[str, list[int]] = {}
    for row in (yield Statement("count_errors_by_hour", {"now": now})):
        counts = found.setdefault(group_id(row["name"], row["fingerprint"]), [0] * HOURS)
        counts[HOURS - 1 - min(row["hour"], HOURS - 1)] += row["count"]
    return found
