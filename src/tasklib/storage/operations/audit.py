"""The audit log: who changed what, when and from where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tasklib.codec import dumps, loads
from tasklib.storage.rows import moment
from tasklib.storage.statement import Operation, Statement


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change."""

    actor: str
    role: str
    action: str
    target: str | None
    detail: Mapping[str, Any]
    remote: str | None
    request_id: str | None


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One change, and when it was."""

    seq: int
    at: datetime
    entry: AuditEntry


def write_audit(entries: Sequence[AuditEntry], now: datetime | None) -> Operation[None]:
    """Add entries to the log."""
    yield Statement("write_audit", {"entries": entries_text(entries), "now": now})


def entries_text(entries: Sequence[AuditEntry]) -> str:
    """The entries as a statement takes them."""
    return dumps([{name: getattr(entry, name) for name in AuditEntry.__slots__} for entry in entries])


def list_audit(*, limit: int, before: int | None = None) -> Operation[list[StoredEntry]]:
    """Entries, the newest first; `before` is the `seq` of the last entry of the page before."""
    found = []
    for row in (yield Statement("list_audit", {"limit": limit, "before": before})):
        at = moment(row["at"])
        assert at is not None
        same = {name: row[name] for name in ("actor", "role", "action", "target", "remote", "request_id")}
        found.append(StoredEntry(row["seq"], at, AuditEntry(**same, detail=loads(row["detail"]))))
    return found
