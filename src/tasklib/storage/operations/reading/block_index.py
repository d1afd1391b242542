"""The block index: which blocks of 10,000 positions cannot hold a match, by name or by creation time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tasklib.core.queue_info import TaskFilter
from tasklib.storage.statement import Operation, Statement

BLOCK_SIZE: Final = 10_000
"""Positions of one row, which lists their names and their oldest and newest creation time."""
MOST_NAMES: Final = 100
"""Names that such a row lists; with more it lists none, and may hold any."""
MOST_BLOCKS: Final = 200
"""Rows looked at for one list; what is older than the last of them may hold anything."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A range without a match: there is none below `top` and above `bottom`."""

    top: int
    bottom: int


def find_gaps(which: TaskFilter, below: int, first: int, counted: int) -> Operation[list[Gap]]:
    """Where, from `first` to below a position, no match can be; only what is counted is known."""
    asked: dict[str, Any] = {
        "name": which.name,
        "created_after": which.created_after,
        # What ended before a moment was created before it.
        "created_before": min(filter(None, (which.created_before, which.completed_before)), default=None),
    }
    top = min(below, counted + 1)
    if top <= first or not any(asked.values()):
        return []
    asked |= {"number": number_of(top - 1), "limit": MOST_BLOCKS}
    rows = yield Statement("find_blocks", asked)
    gaps = []
    for row in rows:
        bottom = row["number"] * BLOCK_SIZE
        gaps.append(Gap(top, bottom + BLOCK_SIZE))
        top = bottom + 1
    if len(rows) < MOST_BLOCKS:
        gaps.append(Gap(top, first - 1))
    return [gap for gap in gaps if gap.bottom < gap.top - 1]


def skip_gaps(position: int, gaps: Sequence[Gap]) -> int:
    """Where a scan that is at this position continues: below every gap that begins there."""
    while gap := next((each for each in gaps if each.bottom < position - 1 < each.top), None):
        position = gap.bottom + 1
    return position


def number_of(position: int) -> int:
    """Which block a position is in."""
    return (position - 1) // BLOCK_SIZE
