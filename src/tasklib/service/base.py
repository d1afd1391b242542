"""What every part of the service has: one queue, the redactor of its tasks, and changes with audit entries."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from tasklib.core.codec import plain
from tasklib.core.redaction import Redactor
from tasklib.core.time.timing import Timing
from tasklib.queue import TaskQueue
from tasklib.queue.sync_async import as_operation, operation
from tasklib.storage.database import Database
from tasklib.storage.operations.access.audit import BEGUN, AuditEntry, recorded
from tasklib.storage.statement import Operation

P = ParamSpec("P")
T = TypeVar("T")
Addition = Mapping[str, Any] | None
"""What a result adds to the detail of its entry in the audit log; None if nothing was changed."""


class ServicePart:
    """One subject of the service; its operations run on the queue's database."""

    def __init__(self, queue: TaskQueue) -> None:
        self.queue = queue
        self.redactor = Redactor(queue.config.redact_keys, queue.secret_places.of)

    @property
    def database(self) -> Database:
        """The database of the queue."""
        return self.queue.database

    @property
    def timing(self) -> Timing:
        """How time passes here."""
        return self.queue.timing

    def audited(
        self, work: Operation[T], audit: AuditEntry | None, added: Callable[[T], Addition] | None = None
    ) -> Operation[T]:
        """The work and its entry in the audit log, both or neither; without an entry just the work.

        `added` returns what the result adds to the detail of the entry.
        """
        if audit is None:
            return (yield from work)

        def entry_of(result: Any) -> AuditEntry | None:
            more = {} if added is None or result is BEGUN else added(result)
            return None if more is None else self.redacted(replace(audit, detail={**audit.detail, **more}))

        return (yield from recorded(work, entry_of))

    async def achange(self, audit: AuditEntry | None, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking method of the queue without blocking, and write its entry in the audit log with it."""
        result: T = await self._achange(functools.partial(as_operation(method), *args, **kwargs), audit)
        return result

    @operation
    def _change(self, change: Callable[[], Operation[Any]], audit: AuditEntry | None) -> Operation[Any]:
        return (yield from self.audited(change(), audit))

    _achange = _change.as_async

    def redacted(self, entry: AuditEntry) -> AuditEntry:
        """The entry with nothing secret in its detail, and without what was not given."""
        given = plain({name: value for name, value in entry.detail.items() if value is not None}, what="audit")
        return replace(entry, detail=self.redactor.value(given))
