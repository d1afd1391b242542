"""Removing finished tasks in the background: a page of rows at a time, by one worker at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasklib.core.codec import dumps
from tasklib.core.retention import Rule
from tasklib.storage.statement import BEGIN, Operation, Statement

PAGE = 1000
"""Rows looked at in one transaction."""


@dataclass(frozen=True, slots=True)
class SweptPage:
    """How many rows of one page were deleted, and whether another page follows."""

    deleted: int
    more: bool
    """False at the end of what can be old enough: the next look begins at the oldest row again."""


def sweep_tasks(rules: Sequence[Rule], turn_seconds: float) -> Operation[SweptPage | None]:
    """Remove the next rows whose retention has passed; None if another worker does it.

    Rows are looked at in the order of their insertion, from where the last look ended.  That needs no index on the time
    of their end, which finishing a task would have to keep, and every look costs the same.
    """
    dated = [rule for rule in rules if rule.seconds is not None]
    if not dated:
        return None
    yield BEGIN
    turn = yield Statement("take_chore", {"name": "retention", "seconds": turn_seconds})
    if not turn:
        return None
    listed = [{"name": rule.name, "state": str(rule.state), "seconds": rule.seconds} for rule in rules]
    shortest = min(rule.seconds for rule in dated if rule.seconds is not None)
    looked = {"rules": dumps(listed), "after": turn[0]["position"], "limit": PAGE, "shortest": shortest}
    row = (yield Statement("sweep_tasks", looked))[0]
    more = row["looked"] == PAGE and not row["fresh"]
    yield Statement("note_chore", {"name": "retention", "position": row["last"] if more else 0})
    return SweptPage(row["deleted"], more)
