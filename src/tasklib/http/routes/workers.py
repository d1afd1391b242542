"""Workers in any language: register, claim, beat, and end each attempt under its fencing token."""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid4

from fastapi import APIRouter, Request

from tasklib.core.codec import encode_result, number
from tasklib.core.lifecycle import Ending
from tasklib.core.task import Task
from tasklib.errors import ClaimLost, DatabaseBusy, DatabaseFull, DatabaseUnavailable, ResultError, TaskNotFound
from tasklib.http.errors import Refused, problems
from tasklib.http.live.timeouts import TimeoutService
from tasklib.http.live.waiting_claims import Waiting, WaitingClaims
from tasklib.http.schemas.tasks import status_of
from tasklib.http.schemas.workers import (
    AttemptEnded,
    Beat,
    Claim,
    ClaimedTask,
    ClaimedTasks,
    Complete,
    End,
    Fail,
    Held,
    Progress,
    Register,
    Registered,
)
from tasklib.http.security.audit import AuditedRoute, changing
from tasklib.http.security.auth import Permission, needs, principal_of
from tasklib.http.service import Queue
from tasklib.queue import TaskQueue
from tasklib.storage.operations import http_workers, statistics
from tasklib.storage.operations.attempts import Claimed, Retries
from tasklib.storage.operations.http_workers import Ended, Known, Remote
from tasklib.storage.operations.workers import Registration
from tasklib.storage.rows import ClaimedTask as Row
from tasklib.storage.statement import Operation, T
from tasklib.worker.upkeep.metrics import Metrics, flush
from tasklib.worker.upkeep.recovery import Recovery

CARE_SECONDS = 5.0
AWAY_SECONDS = 0.5

router = APIRouter(prefix="/api/workers", tags=["workers"], route_class=AuditedRoute)
ending_router = APIRouter(prefix="/api/tasks/{task_id}", tags=["workers"], route_class=AuditedRoute)

ERRORS = problems(400, 401, 403, 404, 413, 503)
ENDING_ERRORS = problems(400, 401, 403, 404, 409, 413, 503)


@router.post("", status_code=201, responses=problems(400, 401, 403, 413, 429, 503), **needs(Permission.WORK))
async def register_worker(body: Register, request: Request, queue: Queue) -> Registered:
    """Make a worker known; it may claim from now on, and only the token that registered it speaks for it."""
    timeout = body.timeout_seconds or queue.config.worker_timeout_seconds
    who = Registration(
        instance=uuid4(),
        worker_id=body.worker_id,
        host=body.host,
        pid=os.getpid(),
        timeout_seconds=timeout,
        concurrency=body.concurrency,
        names=tuple(body.types),
        owner=principal_of(request).identity,
    )
    recording = changing(request, instance=str(who.instance), workerId=who.worker_id, host=who.host)
    try:
        await recording.database.arun(lambda: http_workers.register_for(who, queue.clock.now()))
    except http_workers.TooManyWorkers:
        caretaker: Caretaker = request.app.state.caretaker
        await caretaker.care()  # some of them may be dead
        raise _too_many() from None
    return Registered(
        instance=who.instance,
        heartbeat_seconds=timeout / 4,
        timeout_seconds=timeout,
        lease_seconds=queue.config.lock_timeout_seconds,
    )


@router.post("/{instance}/claim", responses=ERRORS, **needs(Permission.WORK))
async def claim(instance: str, request: Request, queue: Queue, body: Claim | None = None) -> ClaimedTasks:
    """Lease tasks that are due, waiting a little for the first if none is."""
    who, wanted = _remote(instance, request), body or Claim()
    caretaker: Caretaker = request.app.state.caretaker
    await caretaker.care()
    worker, claimed = await caretaker.claim(who, wanted.limit)
    if not claimed.tasks and wanted.wait_seconds:
        claimed = await _wait_and_claim(request, who, wanted, worker.names)
    if claimed.tasks:
        _overtime(request).watch()
    return ClaimedTasks(tasks=[_claimed(row, worker.worker_id) for row in claimed.tasks])


async def _wait_and_claim(request: Request, who: Remote, wanted: Claim, names: Sequence[str]) -> Claimed:
    """What becomes due while the claim waits; nothing if nothing does, or the service stops."""
    on_call: WaitingClaims = request.app.state.on_call
    caretaker: Caretaker = request.app.state.caretaker
    stopping: threading.Event = request.app.state.stopping
    deadline, waiting = time.monotonic() + wanted.wait_seconds, Waiting(who.instance, names)
    try:
        while True:
            left = deadline - time.monotonic()
            await on_call.come(waiting, max(0.1, left))
            _, claimed = await caretaker.claim(who, wanted.limit)
            left = deadline - time.monotonic()
            if claimed.tasks or left <= 0 or stopping.is_set() or await request.is_disconnected():
                return claimed
            due = left if claimed.next_due_in is None else max(0.001, claimed.next_due_in)
            await on_call.wait(waiting, min(left, due), request.is_disconnected)
    finally:
        await on_call.leave(waiting)


@router.post("/{instance}/heartbeat", responses=ERRORS, **needs(Permission.WORK))
async def beat(instance: str, request: Request, queue: Queue) -> Beat:
    """Say that the worker is alive; its leases move forward.  404: it was declared dead, register anew."""
    caretaker: Caretaker = request.app.state.caretaker
    caretaker.watch()
    who, lease = _remote(instance, request), queue.config.lock_timeout_seconds
    holding = await _run(queue, lambda: http_workers.beat_for(who, lease, queue.clock.now()))
    if holding is None:
        raise _unknown(instance)
    if holding.held:
        _overtime(request).watch()
    held = [
        Held(id=UUID(task_id), version=version, cancel_requested=task_id in holding.cancel)
        for task_id, version in holding.held
    ]
    return Beat(tasks=held)


@router.delete("/{instance}", status_code=204, responses=ERRORS, **needs(Permission.WORK))
async def stop_worker(instance: str, request: Request, queue: Queue) -> None:
    """Stop in order: what the worker holds goes back, and no attempt is spent."""
    who = _remote(instance, request)
    recording = changing(request, lambda released: None if released is None else {"released": released})
    await _run(recording, lambda: http_workers.stop_for(who, queue.clock.now()))


@ending_router.post("/complete", responses=ENDING_ERRORS, **needs(Permission.WORK))
async def complete(task_id: str, body: Complete, request: Request, queue: Queue) -> AttemptEnded:
    """The attempt succeeded.  409: it no longer holds the task, and nothing changed."""
    parsed, owner = _task_id(task_id), principal_of(request).identity
    try:
        result = encode_result(body.result, limit=queue.config.max_result_bytes)
    except ResultError as error:
        raise Refused(400, "invalid-result", str(error), field="result") from error
    recording = changing(request, _told, version=body.version)
    backoff, now = queue.config.backoff, queue.clock.now()
    ended = await _run(
        recording, lambda: http_workers.complete_for(parsed, body.version, result, owner, backoff=backoff, now=now)
    )
    if ended is None:
        raise ClaimLost(parsed, body.version, "out of time")
    return _ended(request, ended, "completed")


@ending_router.post("/fail", responses=ENDING_ERRORS, **needs(Permission.WORK))
async def fail(task_id: str, body: Fail, request: Request, queue: Queue) -> AttemptEnded:
    """The attempt failed; another follows by the retry policy, while there are attempts left."""
    parsed, owner = _task_id(task_id), principal_of(request).identity
    error = await _redacted(queue, parsed, body.error)
    recording = changing(request, _told_with_status, version=body.version)
    ended = await _run(
        recording,
        lambda: http_workers.fail_for(
            parsed,
            body.version,
            owner,
            error=error,
            retry=body.retry,
            delay=body.delay_seconds,
            backoff=queue.config.backoff,
            now=queue.clock.now(),
        ),
    )
    return _ended(request, ended, "failed" if ended.task.completed_at else "retried")


@ending_router.post("/stopped", responses=ENDING_ERRORS, **needs(Permission.WORK))
async def stopped(task_id: str, body: End, request: Request, queue: Queue) -> AttemptEnded:
    """The attempt was stopped because a person asked to cancel it."""
    ending, owner = Ending.cancel(str(_task_id(task_id)), body.version), principal_of(request).identity
    recording = changing(request, _told, version=body.version)
    ended = await _run(recording, lambda: http_workers.end_for(ending, owner, queue.clock.now()))
    return _ended(request, ended, "cancelled")


@ending_router.post("/release", responses=ENDING_ERRORS, **needs(Permission.WORK))
async def release(task_id: str, body: End, request: Request, queue: Queue) -> AttemptEnded:
    """Give the task back; the attempt is not spent."""
    ending, owner = Ending.release(str(_task_id(task_id)), body.version), principal_of(request).identity
    recording = changing(request, _told, version=body.version)
    ended = await _run(recording, lambda: http_workers.end_for(ending, owner, queue.clock.now()))
    return _ended(request, ended, None)


@ending_router.post("/progress", status_code=204, responses=ENDING_ERRORS, **needs(Permission.WORK))
async def report(task_id: str, body: Progress, request: Request, queue: Queue) -> None:
    """Keep how far the attempt has come, from 0 to 1."""
    parsed, owner, now = _task_id(task_id), principal_of(request).identity, queue.clock.now()
    await _run(queue, lambda: http_workers.report_for(parsed, body.version, owner, body.progress, body.message, now))


class Caretaker:
    """Does now and then what every worker does for all: take over from the dead, run schedules, keep the numbers."""

    def __init__(self, queue: TaskQueue) -> None:
        self._queue = queue
        self._next = 0.0
        self._watching: asyncio.AbstractEventLoop | None = None
        self._recovery: Recovery | None = None
        self._giving_back: set[asyncio.Future[None]] = set()
        queue.before_close.append(self.stop)
        self.meter = Metrics()

    def watch(self) -> None:
        """Take over from the dead from now on, in the background: that takes regular looks, and requests come as they
        please."""
        loop = asyncio.get_running_loop()
        if self._watching is not loop:
            self._watching = loop
            self._recovery = Recovery(self._queue.database, self._queue.config, now=self._queue.clock.now)
            self._recovery.start()

    async def stop(self) -> None:
        """End what goes on in the background of this event loop; the next worker begins it again."""
        if self._watching is not asyncio.get_running_loop():
            return
        self._watching = None
        if self._recovery is not None:
            await self._recovery.stop()
        for giving_back in self._giving_back:
            giving_back.cancel()
        await asyncio.gather(*self._giving_back, return_exceptions=True)

    async def claim(self, who: Remote, limit: int) -> tuple[Known, Claimed]:
        """Lease tasks to an instance.  What is taken and cannot be told is given back."""
        queue, taken = self._queue, list[tuple[str, int]]()
        try:
            found = await _run(
                queue,
                lambda: http_workers.claim_for(
                    who,
                    limit=limit,
                    lease_seconds=queue.config.lock_timeout_seconds,
                    now=queue.clock.now(),
                    taken=taken,
                    retries=Retries(queue.registry.retries(), queue.config.max_retries),
                ),
                repeatable=False,
            )
        except DatabaseUnavailable:
            if taken:
                giving_back = asyncio.ensure_future(self._give_back(who.instance, taken))
                self._giving_back.add(giving_back)
                giving_back.add_done_callback(self._giving_back.discard)
            raise
        if found is None:
            raise _unknown(str(who.instance))
        return found

    async def _give_back(self, instance: UUID, taken: list[tuple[str, int]]) -> None:
        """Try until the database is back: the worker knows nothing of these, and its heartbeat renews their leases."""
        now = self._queue.clock.now
        while True:
            try:
                await self._queue.database.arun(lambda: http_workers.give_back_for(instance, taken, now()))
                return
            except (DatabaseUnavailable, DatabaseBusy, DatabaseFull):
                await asyncio.sleep(AWAY_SECONDS)

    async def care(self) -> None:
        """Do the rest, if it was not done a moment ago: workers that speak HTTP may be the only ones there are."""
        self.watch()
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + CARE_SECONDS
        queue = self._queue
        await queue.afire_schedules()
        await flush(queue.database, self.meter, queue.clock.now())
        await queue.database.arun(lambda: statistics.keep_statistics(queue.clock.now()))


def _overtime(request: Request) -> TimeoutService:
    overtime: TimeoutService = request.app.state.overtime
    return overtime


def _claimed(row: Row, worker_id: str) -> ClaimedTask:
    task = row.task(worker_id)
    return ClaimedTask(
        id=task.id,
        type=task.name,
        payload=task.payload,
        version=task.version,
        attempt=task.attempts,
        max_attempts=task.max_attempts,
        timeout_seconds=number(task.timeout_seconds),
        tags=dict(task.tags),
        headers=dict(task.headers),
        locked_until=task.locked_until,
    )


def _told(ended: Ended | None) -> dict[str, Any] | None:
    """What the audit log says of an ending beside its version; None if this call has not ended the attempt."""
    return None if ended is None or not ended.now else {}


def _told_with_status(ended: Ended) -> dict[str, Any] | None:
    return {"status": status_of(ended.task.state)} if ended.now else None


def _ended(request: Request, ended: Ended, outcome: str | None) -> AttemptEnded:
    task = ended.task
    if outcome is not None and ended.now:
        caretaker: Caretaker = request.app.state.caretaker
        caretaker.meter.count(task.name, outcome, *_durations(task))
    return AttemptEnded(
        id=task.id, status=status_of(task.state), attempts=task.attempts, next_retry_at=task.next_retry_at
    )


def _durations(task: Task) -> tuple[float | None, float | None]:
    """How long the attempt ran and, if it was the first, had waited, in seconds."""
    last = task.history[-1] if task.history else None
    if last is None or last.started_at is None or last.ended_at is None:
        return None, None
    due = max(task.scheduled_at, task.created_at)
    waited = (last.started_at - due).total_seconds() if last.number == 1 else None
    return (last.ended_at - last.started_at).total_seconds(), waited


async def _redacted(queue: TaskQueue, task_id: UUID, text: str) -> str:
    """A text that a worker says of a task, without the task's secrets: before it is cut, named and stored."""
    task = await queue.aget(task_id)
    if task is None:
        return text
    await queue.alearn_secrets()
    return queue.redactor.texts_of(task).clean(text)


def _too_many() -> Refused:
    detail = (
        f"this caller has {http_workers.MAX_OWNED} workers registered, and more are not kept; stop those that are not "
        "needed by DELETE, or wait until those that are gone are declared dead"
    )
    return Refused(429, "too-many-workers", detail, headers={"Retry-After": str(math.ceil(CARE_SECONDS))})


async def _run(queue: TaskQueue, make: Callable[[], Operation[T]], *, repeatable: bool = True) -> T:
    """Run an operation on behalf of the caller; 403 if it is about a worker that somebody else registered."""
    try:
        return await queue.database.arun(make, repeatable=repeatable)
    except http_workers.NotYours:
        raise Refused(
            403,
            "not-your-worker",
            "this worker was registered with another token, and only that one may speak for it; "
            "register a worker with this token and claim with it",
        ) from None


def _remote(instance: str, request: Request) -> Remote:
    try:
        return Remote(UUID(instance), principal_of(request).identity)
    except ValueError:
        raise _unknown(instance) from None


def _task_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise TaskNotFound(text) from None


def _unknown(instance: str) -> Refused:
    detail = f"no worker has the instance {instance}; it may have been declared dead: register anew"
    return Refused(404, "worker-not-found", detail)
