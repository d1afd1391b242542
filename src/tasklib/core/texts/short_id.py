"""Short forms of ids for people: a unique beginning, a unique end, or both as `0199f1e2..9a3c1f`.  Pure.

The first half of a UUIDv7 is its time: tasks made within the same minute begin alike, and differ in their last digits.
So what is printed has both: the beginning finds the minute in the index, the end the task in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from uuid import UUID

LEAST: Final = 4
"""Digits that a short form has at least."""
_FORM = re.compile(r"([0-9a-f-]*)(?:(?:\.{2,3}|…)([0-9a-f-]*))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ShortId:
    """Which ids are meant: those from `low` to `high` that have this end."""

    low: UUID
    high: UUID
    end: str


def shorten(task_id: UUID) -> str:
    """The form that tables print: `0199f1e2..9a3c1f`."""
    return f"{task_id.hex[:8]}..{task_id.hex[-6:]}"


def readings(text: str) -> list[ShortId]:
    """How a short form can be read, the likelier first; empty if it is none."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        return []
    start, end = (part.replace("-", "").lower() for part in (found[1], found[2] or ""))
    if not len(start) + len(end) >= LEAST or len(start) > 32 or len(end) > 32:
        return []
    return [_reading(start, end)] if end else [_reading(start, ""), _reading("", start)]


def _reading(start: str, end: str) -> ShortId:
    return ShortId(UUID(start.ljust(32, "0")), UUID(start.ljust(32, "f")), end)
