"""Retries at a rate that are under way: the due times keep the pace, the audit log knows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from tasklib.queue.sync_async import operation
from tasklib.service.base import ServicePart
from tasklib.storage.operations.access.audit import StoredEntry, list_audit
from tasklib.storage.operations.clock import read_clock
from tasklib.storage.statement import Operation

RECENT: Final = 500
"""Entries of the audit log that are looked through."""


@dataclass(frozen=True, slots=True)
class PacedRetry:
    """Tasks that come due one after the other."""

    by: str
    began_at: datetime
    type: str | None
    count: int
    rate: float
    """Tasks in a second."""
    released: int
    """How many have come due."""
    ends_at: datetime


class Pacing(ServicePart):
    """The paced retries of one queue."""

    @operation
    def under_way(self) -> Operation[Sequence[PacedRetry]]:
        """The paced retries with tasks that are not due yet, the latest first."""
        now = yield from read_clock()
        entries = yield from list_audit(limit=RECENT)
        found = [paced for each in entries if (paced := _paced(each, now)) is not None]
        return [each for each in found if each.ends_at > now]

    aunder_way = under_way.as_async


def _paced(stored: StoredEntry, now: datetime) -> PacedRetry | None:
    detail = stored.entry.detail
    rate, count = detail.get("rate"), detail.get("changed")
    if not isinstance(rate, int | float) or not isinstance(count, int) or rate <= 0 or count <= 0:
        return None
    passed = max((now - stored.at).total_seconds(), 0.0)
    return PacedRetry(
        by=stored.entry.actor,
        began_at=stored.at,
        type=_type(detail),
        count=count,
        rate=rate,
        released=min(count, int(passed * rate) + 1),
        ends_at=stored.at + timedelta(seconds=min((count - 1) / rate, 1e9)),
    )


def _type(detail: Mapping[str, Any]) -> str | None:
    named = detail.get("type") or (detail.get("filter") or {}).get("type")
    return named if isinstance(named, str) else None
