"""What people decided about a group of errors, and what that means now.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Mark = Literal["muted", "resolved"]
Status = Literal["open", "muted", "resolved", "reopened"]


@dataclass(frozen=True, slots=True)
class ErrorMark:
    """A decision about a group of errors."""

    group_id: str
    mark: Mark
    set_at: datetime
    set_by: str | None


def status_of(last_seen: datetime, mark: ErrorMark | None) -> Status:
    """The status of a group; one that failed again after it was resolved is `reopened`."""
    if mark is None:
        return "open"
    if mark.mark == "muted":
        return "muted"
    return "reopened" if last_seen > mark.set_at else "resolved"
