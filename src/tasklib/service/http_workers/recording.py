"""Workflows in any language: workers over HTTP record steps, wait without holding their task, and run children."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from tasklib.core.codec import encode_result, plain
from tasklib.core.member_ids import member_id
from tasklib.core.redaction import SECRETS_HEADER
from tasklib.core.task import SUBMITTER_HEADER, NewTask
from tasklib.queue.sync_async import operation
from tasklib.service.audit import AuditEntry
from tasklib.service.base import ServicePart
from tasklib.storage.operations import http_workflows
from tasklib.storage.operations.http_workflows import Attempt, ChildResult, GroupState, StepRecord, Wait
from tasklib.storage.operations.limits.budgets import Taken
from tasklib.storage.operations.tasks import require_task
from tasklib.storage.operations.workflows.groups import rows_of
from tasklib.storage.statement import Operation
from tasklib.submission import with_secrets
from tasklib.worker.workflows.records import ERROR_CHARACTERS

__all__ = ["Attempt", "GroupState", "Recording", "StepRecord", "Wait"]


class Recording(ServicePart):
    """What workers over HTTP record of their attempts; NotOwner for those of others, ClaimLost after the end."""

    @operation
    def records(self, attempt: Attempt) -> Operation[Sequence[StepRecord]]:
        """Everything that the task has recorded, in clear: its worker needs it."""
        return (yield from http_workflows.list_records(attempt))

    arecords = records.as_async

    @operation
    def record(
        self,
        attempt: Attempt,
        key: str,
        *,
        digest: str | None,
        value: Any,
        error: Mapping[str, str] | None,
        seconds: float,
    ) -> Operation[StepRecord]:
        """Record what a step returned, or its error; what is stored, which is the first value that was sent."""
        encode_result(value, limit=self.queue.config.max_result_bytes)
        if error is not None:
            error = yield from self._cleaned(attempt.task_id, error)
        return (yield from http_workflows.record_step(attempt, key, digest, value, error, seconds))

    arecord = record.as_async

    async def asuspend(self, attempt: Attempt, wait: Wait, audit: AuditEntry | None = None) -> StepRecord | None:
        """What the worker waits for, if it is there; else the attempt ends, and the task is due when it comes: None.

        The open step is committed first: whoever fills it meanwhile finds it, or is found.
        """
        if not await self._aopen(attempt, wait):
            return None
        return await self._atake_or_suspend(attempt, wait, audit)

    @operation
    def _open(self, attempt: Attempt, wait: Wait) -> Operation[bool]:
        return (yield from http_workflows.open_wait(attempt, wait)) is not None

    _aopen = _open.as_async

    @operation
    def _take_or_suspend(self, attempt: Attempt, wait: Wait, audit: AuditEntry | None) -> Operation[StepRecord | None]:
        work = http_workflows.take_or_suspend(attempt, wait)
        return (yield from self.audited(work, audit, lambda step: {} if step is None else None))

    _atake_or_suspend = _take_or_suspend.as_async

    @operation
    def park(self, attempt: Attempt, reason: str, *, audit: AuditEntry | None = None) -> Operation[None]:
        """End an attempt whose code does not fit what is recorded; other code or a person resumes it."""
        yield from self.queue.secret_places.learn()
        task = yield from require_task(attempt.task_id)
        work = http_workflows.park(attempt, self.redactor.texts_of(task).clean(reason))
        yield from self.audited(work, audit)

    apark = park.as_async

    @operation
    def children(
        self,
        attempt: Attempt,
        key: str,
        name: str,
        payloads: Sequence[Any],
        *,
        before: int,
        sealed: bool,
        max_failures: int | None,
        seconds: float | None,
        audit: AuditEntry | None = None,
    ) -> Operation[GroupState]:
        """Store children of a task, after the `before` first; sent again it changes nothing."""
        yield from self.queue.secret_places.learn()
        task = yield from require_task(attempt.task_id)
        group = yield from http_workflows.find_group(attempt, key)
        inherited = {
            name: value for name, value in task.headers.items() if name not in (SECRETS_HEADER, SUBMITTER_HEADER)
        }
        new = [
            self._child(name, payload, member_id(group, index), task.priority, inherited)
            for index, payload in enumerate(payloads, before)
        ]
        work = http_workflows.add_children(
            attempt,
            key,
            before,
            rows_of(new),
            group=group,
            sealed=sealed,
            max_failures=max_failures,
            seconds=seconds,
        )
        return (yield from self.audited(work, audit, lambda state: {"total": state.total}))

    achildren = children.as_async

    @operation
    def results(self, attempt: Attempt, key: str, after: UUID | None) -> Operation[Sequence[ChildResult]]:
        """The next children with their results, in the order in which they were sent."""
        return (yield from http_workflows.list_children(attempt, key, after))

    aresults = results.as_async

    @operation
    def spend(self, attempt: Attempt, key: str, name: str, cost: float) -> Operation[Taken]:
        """Take tokens from a budget as a step of the task: once."""
        return (yield from http_workflows.spend(attempt, key, name, cost))

    aspend = spend.as_async

    @operation
    def require_holding(self, task_id: UUID, owner: str) -> Operation[None]:
        """Refuse a caller whose workers do not hold the task now."""
        yield from http_workflows.require_holding(task_id, owner)

    arequire_holding = require_holding.as_async

    def _child(self, name: str, payload: Any, task_id: UUID, priority: int, headers: Mapping[str, Any]) -> NewTask:
        given = plain(payload, what=name, limit=self.queue.config.max_payload_bytes)
        new = self.queue.new_by_name(name, given, id=task_id, priority=priority, headers=headers)
        return with_secrets(new, self.queue.secret_places.of(name))

    def _cleaned(self, task_id: UUID, error: Mapping[str, str]) -> Operation[dict[str, str]]:
        """The error without the task's secrets, cut."""
        yield from self.queue.secret_places.learn()
        task = yield from require_task(task_id)
        texts = self.redactor.texts_of(task)
        return {name: texts.clean(text)[:ERROR_CHARACTERS] for name, text in error.items()}
