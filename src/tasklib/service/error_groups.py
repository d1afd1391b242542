"""Tasks that failed for good, grouped by error: shown without secrets, counted by hour, retried together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tasklib.core.insights.error_marks import ErrorMark, Mark, Status, status_of
from tasklib.core.queue_info import ErrorGroup
from tasklib.core.texts.error_text import summary
from tasklib.queue.change_log import if_done
from tasklib.queue.sync_async import as_operation, operation
from tasklib.service.audit import AuditEntry
from tasklib.service.base import ServicePart
from tasklib.storage.operations import errors, tasks
from tasklib.storage.operations.errors import HOURS, MOST_GROUPS, count_errors_by_hour
from tasklib.storage.statement import Operation

__all__ = ["HOURS", "MOST_GROUPS", "ErrorGroups", "ErrorMark", "Mark", "Status", "status_of"]


class ErrorGroups(ServicePart):
    """The failures of one queue."""

    @operation
    def all(self, name: str | None = None, *, limit: int = 100) -> Operation[tuple[ErrorGroup, ...]]:
        """Failures grouped by name and kind of error, the latest first."""
        return (yield from self._shown((yield from errors.list_errors(name, limit))))

    aall = all.as_async

    @operation
    def shown(self, groups: Sequence[ErrorGroup]) -> Operation[tuple[ErrorGroup, ...]]:
        """The groups without the secrets that their messages and fingerprints may quote."""
        return (yield from self._shown(groups))

    ashown = shown.as_async

    def _shown(self, groups: Sequence[ErrorGroup]) -> Operation[tuple[ErrorGroup, ...]]:
        shown: list[ErrorGroup] = []
        yield from self.queue.secret_places.learn()
        for group in groups:
            # Only the arguments of the task say what is secret in its message.
            task = yield from tasks.get_task(group.example)
            if task is None:
                shown.append(replace(group, message=""))
                continue
            hide = self.redactor.texts_of(task)
            message = summary(hide.text(task.error) or "")
            shown.append(replace(group, message=message, fingerprint=hide.text(group.fingerprint)))
        return tuple(shown)

    @operation
    def find(self, group_id: str) -> Operation[ErrorGroup | None]:
        """The group with this id, as `redrive` takes it; its texts are not redacted."""
        groups = yield from errors.list_errors(None, MOST_GROUPS)
        return next((each for each in groups if each.id == group_id), None)

    afind = find.as_async

    @operation
    def by_hour(self) -> Operation[Mapping[str, list[int]]]:
        """How often each group happened in each of the last HOURS hours, the oldest first, by the group's id."""
        return (yield from count_errors_by_hour())

    aby_hour = by_hour.as_async

    @operation
    def redrive(
        self, group: ErrorGroup, *, rate: float | None = None, dry_run: bool = False, audit: AuditEntry | None = None
    ) -> Operation[int]:
        """Retry every task of a group, from zero attempts, `rate` per second; with `dry_run` only count them."""
        work = as_operation(self.queue.redrive)(group, rate=rate, dry_run=dry_run)
        return (yield from self.audited(work, audit, lambda changed: {"changed": changed}))

    aredrive = redrive.as_async

    @operation
    def marks(self) -> Operation[Mapping[str, ErrorMark]]:
        """What people decided about groups, by the id of the group."""
        return (yield from errors.list_error_marks())

    amarks = marks.as_async

    @operation
    def mark(
        self, group_id: str, mark: Mark | None, *, by: str | None = None, audit: AuditEntry | None = None
    ) -> Operation[bool]:
        """Mute or resolve a group, or open it again with None; False if nothing was changed."""
        work = errors.mark_error(group_id, mark, by)
        return (yield from self.audited(work, audit, if_done))

    amark = mark.as_async
