"""Pauses and limits: the changes of a queue's own, each with its entry in the audit log."""

from __future__ import annotations

from tasklib.queue.sync_async import as_operation, operation
from tasklib.service.audit import AuditEntry
from tasklib.service.base import ServicePart
from tasklib.storage.statement import Operation


class Limits(ServicePart):
    """What may start, and how much of it."""

    @operation
    def pause(
        self, name: str | None, *, by: str | None = None, reason: str | None = None, audit: AuditEntry | None = None
    ) -> Operation[None]:
        """Stop starting tasks, of one name or of all, on every worker; running ones finish."""
        yield from self.audited(as_operation(self.queue.pause)(name, by=by, reason=reason), audit)

    apause = pause.as_async

    @operation
    def resume(self, name: str | None, *, audit: AuditEntry | None = None) -> Operation[bool]:
        """Start tasks again; False if nothing was paused under that name."""
        return (yield from self.audited(as_operation(self.queue.resume)(name), audit))

    aresume = resume.as_async

    @operation
    def set_rate(
        self, tasks_per_second: float, name: str | None, *, audit: AuditEntry | None = None
    ) -> Operation[None]:
        """Let at most so many tasks, of one name or of all, start in a second over all workers; 0 is unlimited."""
        yield from self.audited(as_operation(self.queue.set_rate_limit)(tasks_per_second, name), audit)

    aset_rate = set_rate.as_async

    @operation
    def set_concurrency(self, count: int, name: str | None, *, audit: AuditEntry | None = None) -> Operation[None]:
        """Let at most so many tasks, of one name or of all, run at once over all workers; 0 is unlimited."""
        yield from self.audited(as_operation(self.queue.set_concurrency_limit)(count, name), audit)

    aset_concurrency = set_concurrency.as_async

    @operation
    def set_key(
        self, count: int | None, key: str | None, name: str | None, *, audit: AuditEntry | None = None
    ) -> Operation[None]:
        """Let at most so many tasks of one concurrency key, or of each, run at once; None forgets what was set."""
        yield from self.audited(as_operation(self.queue.set_key_limit)(count, key, name), audit)

    aset_key = set_key.as_async
