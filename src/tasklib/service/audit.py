"""The audit log: who changed what, when and from where."""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.queue.sync_async import operation, single_try
from tasklib.service.base import ServicePart
from tasklib.storage.operations.access import audit
from tasklib.storage.operations.access.audit import AuditEntry, StoredEntry
from tasklib.storage.statement import Operation

__all__ = ["AuditEntry", "AuditLog", "StoredEntry"]


class AuditLog(ServicePart):
    """The log of one queue."""

    @operation
    def page(self, *, limit: int, before: int | None = None) -> Operation[Sequence[StoredEntry]]:
        """Entries, the newest first; `before` is the `seq` of the last entry of the previous page."""
        return (yield from audit.list_audit(limit=limit, before=before))

    apage = page.as_async

    @single_try
    def write(self, entry: AuditEntry) -> Operation[None]:
        """Add an entry for a request that changes nothing stored, such as signing in or being refused."""
        yield from audit.write_audit([self.redacted(entry)])

    awrite = write.as_async
