"""Workers in any language: they register, claim, send heartbeats, and end each attempt under its fencing token."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias
from uuid import UUID

from tasklib.core.outcome import Cancelled, Outcome, Raised, Released, Reported
from tasklib.core.retry import OUTAGES
from tasklib.core.task import Task
from tasklib.errors import DatabaseUnavailable, Snooze
from tasklib.queue import TaskQueue
from tasklib.queue.base import stop_before_close
from tasklib.queue.sync_async import operation, single_try
from tasklib.service.audit import AuditEntry
from tasklib.service.base import Addition, ServicePart
from tasklib.service.http_workers.timeouts import TimeoutService
from tasklib.service.http_workers.upkeep import Upkeep
from tasklib.service.http_workers.waiting_claims import Waiting, WaitingClaims
from tasklib.storage.operations import http_workers
from tasklib.storage.operations.claims import Claimed, Retries
from tasklib.storage.operations.http_workers import (
    MAX_OWNED,
    Ended,
    HeldAttempts,
    NotOwner,
    OwnedInstance,
    RegisteredWorker,
    TooManyWorkers,
)
from tasklib.storage.operations.http_workflows import StepRecord, load_records
from tasklib.storage.operations.tasks import get_task
from tasklib.storage.operations.workers import Registration
from tasklib.storage.operations.workflows.marks import BEFORE, HAS_STEPS, MEMBER
from tasklib.storage.statement import Operation
from tasklib.worker.recording.metrics import Metrics

__all__ = ["MAX_OWNED", "HttpWorkers", "NotOwner", "OwnedInstance", "Registration", "TooManyWorkers"]

AWAY_SECONDS: Final = 0.5

Leased: TypeAlias = tuple[RegisteredWorker, Claimed, Mapping[str, Sequence[StepRecord]]]
"""What a claim has taken for a worker, and what workflows among it have recorded, by their ids."""


class HttpWorkers(ServicePart):
    """The workers of one queue that use HTTP.

    Only the caller that registered a worker may claim, send heartbeats, end attempts or stop for it: NotOwner.
    """

    def __init__(self, queue: TaskQueue, stopping: threading.Event) -> None:
        super().__init__(queue)
        self._stopping = stopping
        self._metrics = Metrics()
        self._releases: set[asyncio.Future[None]] = set()
        self._members: set[UUID] = set()
        """Tasks claimed here that other tasks wait for."""
        self.upkeep = Upkeep(queue, self._metrics)
        self.timeouts = TimeoutService(queue, self._metrics, stopping)
        self.waiting = WaitingClaims(queue, stopping)
        stop_before_close(queue, self.stop)

    @operation
    def register(self, who: Registration, *, audit: AuditEntry | None = None) -> Operation[None]:
        """Register a worker; TooManyWorkers if its owner has MAX_OWNED others."""
        yield from self.audited(http_workers.register_for(who), audit)

    aregister = register.as_async

    async def claim(
        self, who: OwnedInstance, limit: int, wait_seconds: float, is_gone: Callable[[], Awaitable[bool]]
    ) -> Sequence[tuple[Task, Sequence[StepRecord] | None]] | None:
        """Lease tasks that are due, waiting up to `wait_seconds` for the first; None if the worker is not registered.

        A workflow comes with what it has recorded.  `is_gone` says whether the client has disconnected.
        """
        await self.upkeep.care()
        found = await self._claim(who, limit)
        if found is not None and not found[1].tasks and wait_seconds:
            found = await self._wait_and_claim(who, limit, wait_seconds, found[0].names, is_gone)
        if found is None:
            return None
        worker, claimed, records = found
        if claimed.tasks:
            self.timeouts.watch()
        self._members.update(UUID(row.id) for row in claimed.tasks if row.marks & (MEMBER | BEFORE))
        return [(row.task(worker.worker_id), records.get(row.id)) for row in claimed.tasks]

    async def beat(self, who: OwnedInstance) -> HeldAttempts | None:
        """Record a heartbeat and renew the worker's leases; None if it was declared dead."""
        self.upkeep.watch()
        holding = await self._abeat(who)
        if holding is not None and holding.held:
            self.timeouts.watch()
        return holding

    @operation
    def stop_worker(self, who: OwnedInstance, *, audit: AuditEntry | None = None) -> Operation[int | None]:
        """Remove a worker and release what it holds, no attempt spent; None if it is not registered."""
        work = http_workers.stop_for(who)
        return (yield from self.audited(work, audit, lambda n: None if n is None else {"released": n}))

    astop_worker = stop_worker.as_async

    async def complete(
        self, task_id: UUID, version: int, result: str, owner: str, audit: AuditEntry | None = None
    ) -> Task | None:
        """End an attempt in success; its result is JSON text.  None: it had passed its timeout, and has failed."""
        ended = await self._acomplete(task_id, version, result, owner, audit)
        return None if ended is None else self._counted(ended, "completed")

    async def fail(
        self,
        task_id: UUID,
        version: int,
        reported: Reported,
        owner: str,
        *,
        step: str | None = None,
        audit: AuditEntry | None = None,
    ) -> Task:
        """End an attempt in failure; another follows by the retry policy, while there are attempts left."""
        ended = await self._afail(task_id, version, reported, owner, step, audit)
        return self._counted(ended, "failed" if ended.task.completed_at else "retried")

    async def end_cancelled(self, task_id: UUID, version: int, owner: str, audit: AuditEntry | None = None) -> Task:
        """End an attempt that was stopped because a person asked to cancel it; InvalidTransition if nobody did."""
        return self._counted(await self._aend(task_id, version, Cancelled(), owner, audit), "cancelled")

    async def snooze(
        self, task_id: UUID, version: int, owner: str, *, delay: float, audit: AuditEntry | None = None
    ) -> Task:
        """End an attempt that asks to run again after `delay` seconds; it is not spent."""
        return (await self._aend(task_id, version, Raised(Snooze(delay)), owner, audit)).task

    async def release(self, task_id: UUID, version: int, owner: str, audit: AuditEntry | None = None) -> Task:
        """Give a task back; the attempt is not spent."""
        return (await self._aend(task_id, version, Released(), owner, audit)).task

    @operation
    def report(self, task_id: UUID, version: int, owner: str, progress: float, message: str | None) -> Operation[None]:
        """Store the progress of the attempt, from 0 to 1."""
        yield from http_workers.report_for(task_id, version, owner, progress, message)

    areport = report.as_async

    @operation
    def log(self, task_id: UUID, version: int, owner: str, lines: Sequence[tuple[str, str]]) -> Operation[None]:
        """Keep lines that the attempt has logged, each a level and a text, as `ctx.log` does."""
        yield from self.queue.secret_places.learn()
        yield from http_workers.log_for(task_id, version, owner, lines, self.redactor.texts_of)

    alog = log.as_async

    async def stop(self) -> None:
        """Stop the background work in this event loop; the next request of a worker starts it again."""
        await self.upkeep.stop()
        await self.timeouts.stop()
        loop = asyncio.get_running_loop()
        own = [each for each in self._releases if each.get_loop() is loop]
        for release in own:
            release.cancel()
        await asyncio.gather(*own, return_exceptions=True)

    async def _wait_and_claim(
        self,
        who: OwnedInstance,
        limit: int,
        seconds: float,
        names: Sequence[str],
        is_gone: Callable[[], Awaitable[bool]],
    ) -> Leased | None:
        """The tasks that become due while the claim waits; none if none does, or if the service stops."""
        deadline, waiting = self.timing.monotonic() + seconds, Waiting(who.instance, names)
        try:
            while True:
                await self.waiting.join(waiting, max(0.1, deadline - self.timing.monotonic()))
                found = await self._claim(who, limit)
                left = deadline - self.timing.monotonic()
                if found is None or found[1].tasks or left <= 0 or self._stopping.is_set() or await is_gone():
                    return found
                next_due = found[1].next_due_in
                due = left if next_due is None else max(0.001, next_due)
                await self.waiting.wait(waiting, min(left, due), is_gone)
        finally:
            await self.waiting.leave(waiting)

    async def _claim(self, who: OwnedInstance, limit: int) -> Leased | None:
        """Lease tasks to a worker.  Tasks that were leased by a claim whose answer is lost are released."""
        taken = list[tuple[str, int]]()
        try:
            return await self._aclaim_once(who, limit, taken)
        except DatabaseUnavailable:
            if taken:
                release = asyncio.ensure_future(self._release(who.instance, taken))
                self._releases.add(release)
                release.add_done_callback(self._releases.discard)
            raise

    @single_try
    def _claim_once(self, who: OwnedInstance, limit: int, taken: list[tuple[str, int]]) -> Operation[Leased | None]:
        config = self.queue.config
        found = yield from http_workers.claim_for(
            who,
            limit=limit,
            lease_seconds=config.lock_timeout_seconds,
            taken=taken,
            retries=Retries(self.queue.registry.retries(), config.max_retries),
        )
        if found is None:
            return None
        records: dict[str, Sequence[StepRecord]] = {}
        for task in found[1].tasks:
            if task.marks & HAS_STEPS:
                records[task.id] = yield from load_records(task.id)
        return *found, records

    _aclaim_once = _claim_once.as_async

    async def _release(self, instance: UUID, taken: Sequence[tuple[str, int]]) -> None:
        """Release tasks, trying until the database is back: their worker renews their leases, but does not run them."""
        while True:
            try:
                await self._arelease_once(instance, taken)
                return
            except OUTAGES:
                await self.timing.sleep(AWAY_SECONDS)

    @operation
    def _release_once(self, instance: UUID, taken: Sequence[tuple[str, int]]) -> Operation[None]:
        yield from http_workers.release_claimed(instance, taken)

    _arelease_once = _release_once.as_async

    @operation
    def _beat(self, who: OwnedInstance) -> Operation[HeldAttempts | None]:
        lease = self.queue.config.lock_timeout_seconds
        return (yield from http_workers.beat_for(who, lease))

    _abeat = _beat.as_async

    @operation
    def _complete(
        self, task_id: UUID, version: int, result: str, owner: str, audit: AuditEntry | None
    ) -> Operation[Ended | None]:
        backoff = self.queue.config.backoff
        work = http_workers.complete_for(task_id, version, result, owner, backoff=backoff)
        return (yield from self.audited(work, audit, _if_ended))

    _acomplete = _complete.as_async

    @operation
    def _fail(
        self,
        task_id: UUID,
        version: int,
        reported: Reported,
        owner: str,
        step: str | None,
        audit: AuditEntry | None,
    ) -> Operation[Ended]:
        yield from self.queue.secret_places.learn()
        task = yield from get_task(task_id)
        if task is not None:  # without its secrets, before the text is cut, grouped and stored
            reported = replace(reported, error=self.redactor.texts_of(task).clean(reported.error))
        backoff = self.queue.config.backoff
        work = http_workers.fail_for(task_id, version, reported, owner, backoff=backoff, step=step)
        return (yield from self.audited(work, audit, _if_ended_with_state))

    _afail = _fail.as_async

    @operation
    def _end(
        self, task_id: UUID, version: int, outcome: Outcome, owner: str, audit: AuditEntry | None
    ) -> Operation[Ended]:
        work = http_workers.end_for(task_id, version, outcome, owner, backoff=self.queue.config.backoff)
        return (yield from self.audited(work, audit, _if_ended))

    _aend = _end.as_async

    def _counted(self, ended: Ended, outcome: str) -> Task:
        """The task after its attempt, which is counted if it is this call that ended it."""
        if ended.task.id in self._members:
            self._members.discard(ended.task.id)
            self.upkeep.child_ended()
        if ended.now:
            self._metrics.count(ended.task.name, outcome, *_durations(ended.task))
        return ended.task


def _if_ended(ended: Ended | None) -> Addition:
    """What is added to the audit entry of an attempt's end: nothing; None if this call has not ended it."""
    return None if ended is None or not ended.now else {}


def _if_ended_with_state(ended: Ended) -> Addition:
    return {"status": str(ended.task.state)} if ended.now else None


def _durations(task: Task) -> tuple[float | None, float | None]:
    """How long the attempt ran and, if it was the first, had waited, in seconds."""
    last = task.history[-1] if task.history else None
    if last is None or last.started_at is None or last.ended_at is None:
        return None, None
    due = max(task.scheduled_at, task.created_at)
    waited = (last.started_at - due).total_seconds() if last.number == 1 else None
    return (last.ended_at - last.started_at).total_seconds(), waited
