"""Removing facts that no task can need: those much older than the oldest task that has not ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tasklib.storage.rows import moment
from tasklib.storage.statement import BEGIN, Operation, Statement

LOOKED_AT: Final = 10_000
"""Rows of tasks looked at in one transaction."""
PAGE: Final = 1000
"""Facts removed in one transaction."""
MARGIN_SECONDS: Final = 3600.0
"""Facts are kept for so much longer: a task that is submitted in a long transaction is seen later than it is dated."""


@dataclass(frozen=True, slots=True)
class LiveTasks:
    """What one page of tasks shows about those that have not ended."""

    last: int | None
    """Where the next page begins; None if this is the last one."""
    oldest: datetime | None
    """When the oldest of them was submitted."""


def begin_fact_sweep(kept_seconds: float, turn_seconds: float) -> Operation[datetime | None]:
    """Take the turn to remove facts; the time, or None if nothing is old enough or another worker has the turn."""
    rows = yield Statement("look_for_old_facts", {"seconds": kept_seconds + MARGIN_SECONDS})
    if not rows:  # Asked first: a queue without old facts writes nothing.
        return None
    yield BEGIN
    turn = yield Statement("take_chore", {"name": "facts", "seconds": turn_seconds})
    return moment(rows[0]["now"]) if turn else None


def look_for_live_tasks(after: int) -> Operation[LiveTasks]:
    """Read the next tasks in the order of their insertion; the first page with one that has not ended is the last."""
    (row,) = yield Statement("look_for_live_tasks", {"after": after, "limit": LOOKED_AT})
    oldest = moment(row["oldest"])
    more = row["looked"] == LOOKED_AT and oldest is None
    return LiveTasks(row["last"] if more else None, oldest)


def sweep_facts(submitted: datetime, kept_seconds: float) -> Operation[int]:
    """Remove a page of the facts that no task submitted at this moment or later needs; how many were removed."""
    before = submitted - timedelta(seconds=kept_seconds + MARGIN_SECONDS)
    return len((yield Statement("sweep_facts", {"before": before, "limit": PAGE})))
