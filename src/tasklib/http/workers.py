"""Workers in any language: register, claim, beat, and end each attempt under its fencing token."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from uuid import UUID, uuid4

from fastapi import APIRouter, Request

from tasklib.codec import encode_result
from tasklib.definition import secrets_of
from tasklib.errors import DatabaseBusy, DatabaseFull, DatabaseUnavailable, ResultError, TaskNotFound
from tasklib.http.audit import AuditedRoute, changing
from tasklib.http.auth import Permission, needs
from tasklib.http.errors import Refused, problems
from tasklib.http.remote_schemas import (
    AttemptEnded,
    Beat,
    Claim,
    ClaimedTask,
    ClaimedTasks,
    Complete,
    Ended,
    Fail,
    Held,
    Progress,
    Register,
    Registered,
)
from tasklib.http.schemas import status_of
from tasklib.http.service import Queue, redactor_of
from tasklib.lifecycle import Ending
from tasklib.queue import TaskQueue
from tasklib.storage.operations import numbers, remote, workers
from tasklib.storage.operations.attempts import Claimed, Retries
from tasklib.storage.operations.workers import Registration
from tasklib.storage.rows import ClaimedTask as Row
from tasklib.storage.rows import number
from tasklib.task import Task, WorkerInfo
from tasklib.worker.meter import Meter, flush
from tasklib.worker.recovery import Recovery

POLL_SECONDS = 0.5
CARE_SECONDS = 5.0

router = APIRouter(prefix="/api/workers", tags=["workers"], route_class=AuditedRoute)
ending_router = APIRouter(prefix="/api/tasks/{task_id}", tags=["workers"], route_class=AuditedRoute)

ERRORS = problems(400, 401, 403, 404, 413, 503)
ENDING_ERRORS = problems(400, 401, 403, 404, 409, 413, 503)


@router.post("", status_code=201, responses=problems(400, 401, 403, 413, 503), **needs(Permission.WORK))
async def register_worker(body: Register, request: Request, queue: Queue) -> Registered:
    """Make a worker known; it may claim from now on."""
    timeout = body.timeout_seconds or queue.config.worker_timeout_seconds
    who = Registration(uuid4(), body.worker_id, body.host, os.getpid(), timeout, body.concurrency, tuple(body.types))
    recording = changing(request, instance=str(who.instance), workerId=who.worker_id, host=who.host)
    await recording.database.arun(lambda: workers.register_worker(who, queue.clock.now()))
    return Registered(
        instance=who.instance,
        heartbeat_seconds=timeout / 4,
        timeout_seconds=timeout,
        lease_seconds=queue.config.lock_timeout_seconds,
    )


@router.post("/{instance}/claim", responses=ERRORS, **needs(Permission.WORK))
async def claim(instance: str, request: Request, queue: Queue, body: Claim | None = None) -> ClaimedTasks:
    """Lease tasks that are due, waiting a little for the first if none is."""
    parsed, wanted = _instance(instance), body or Claim()
    caretaker: Caretaker = request.app.state.caretaker
    stopping: threading.Event = request.app.state.stopping
    await caretaker.care()
    deadline = time.monotonic() + wanted.wait_seconds
    while True:
        found = await caretaker.claim(parsed, wanted.limit)
        if found is None:
            raise _unknown(instance)
        worker, claimed = found
        left = deadline - time.monotonic()
        if claimed.tasks or left <= 0 or stopping.is_set() or await request.is_disconnected():
            return ClaimedTasks(tasks=[_claimed(row, worker.worker_id) for row in claimed.tasks])
        await asyncio.sleep(min(left, POLL_SECONDS, claimed.next_due_in or POLL_SECONDS))


@router.post("/{instance}/heartbeat", responses=ERRORS, **needs(Permission.WORK))
async def beat(instance: str, request: Request, queue: Queue) -> Beat:
    """Say that the worker is alive; its leases move forward.  404: it was declared dead, register anew."""
    caretaker: Caretaker = request.app.state.caretaker
    caretaker.watch()
    parsed, lease = _instance(instance), queue.config.lock_timeout_seconds
    holding = await queue.database.arun(lambda: remote.beat_for(parsed, lease, queue.clock.now()))
    if holding is None:
        raise _unknown(instance)
    held = [
        Held(id=UUID(task_id), version=version, cancel_requested=task_id in holding.cancel)
        for task_id, version in holding.held
    ]
    return Beat(tasks=held)


@router.delete("/{instance}", status_code=204, responses=ERRORS, **needs(Permission.WORK))
async def stop_worker(instance: str, request: Request, queue: Queue) -> None:
    """Stop in order: what the worker holds goes back, and no attempt is spent."""
    parsed = _instance(instance)
    await changing(request, lambda released: {"released": released}).database.arun(
        lambda: workers.release_held(parsed, queue.clock.now())
    )


@ending_router.post("/complete", responses=ENDING_ERRORS, **needs(Permission.WORK))
async def complete(task_id: str, body: Complete, request: Request, queue: Queue) -> AttemptEnded:
    """The attempt succeeded.  409: it no longer holds the task, and nothing changed."""
    parsed = _task_id(task_id)
    try:
        result = encode_result(body.result, limit=queue.config.max_result_bytes)
    except ResultError as error:
        raise Refused(400, "invalid-result", str(error), field="result") from error
    recording = changing(request, version=body.version)
    task = await recording.database.arun(lambda: remote.complete_for(parsed, body.version, result, queue.clock.now()))
    return _ended(request, task, "completed")


@ending_router.post("/fail", responses=ENDING_ERRORS, **needs(Permission.WORK))
async def fail(task_id: str, body: Fail, request: Request, queue: Queue) -> AttemptEnded:
    """The attempt failed; another follows by the retry policy, while there are attempts left."""
    parsed = _task_id(task_id)
    error = await _redacted(queue, parsed, body.error)
    recording = changing(request, lambda task: {"status": status_of(task.state)}, version=body.version)
    task = await recording.database.arun(
        lambda: remote.fail_for(
            parsed,
            body.version,
            error=error,
            retry=body.retry,
            delay=body.delay_seconds,
            backoff=queue.config.backoff,
            now=queue.clock.now(),
        )
    )
    return _ended(request, task, "failed" if task.completed_at else "retried")


@ending_router.post("/stopped", responses=ENDING_ERRORS, **needs(Permission.WORK))
async def stopped(task_id: str, body: Ended, request: Request, queue: Queue) -> AttemptEnded:
    """The attempt was stopped because a person asked to cancel it."""
    ending = Ending.cancel(str(_task_id(task_id)), body.version)
    queue = changing(request, version=body.version)
    return _ended(request, await queue.database.arun(lambda: remote.end_for(ending, queue.clock.now())), "cancelled")


@ending_router.post("/release", responses=ENDING_ERRORS, **needs(Permission.WORK))
async def release(task_id: str, body: Ended, request: Request, queue: Queue) -> AttemptEnded:
    """Give the task back; the attempt is not spent."""
    ending = Ending.release(str(_task_id(task_id)), body.version)
    queue = changing(request, version=body.version)
    return _ended(request, await queue.database.arun(lambda: remote.end_for(ending, queue.clock.now())), None)


@ending_router.post("/progress", status_code=204, responses=ENDING_ERRORS, **needs(Permission.WORK))
async def report(task_id: str, body: Progress, queue: Queue) -> None:
    """Keep how far the attempt has come, from 0 to 1."""
    parsed, now = _task_id(task_id), queue.clock.now()
    await queue.database.arun(lambda: remote.report_for(parsed, body.version, body.progress, body.message, now))


class Caretaker:
    """Does now and then what every worker does for all: take over from the dead, run schedules, keep the numbers."""

    def __init__(self, queue: TaskQueue) -> None:
        self._queue = queue
        self._next = 0.0
        self._watching: asyncio.AbstractEventLoop | None = None
        self._recovery: Recovery | None = None
        self._giving_back: set[asyncio.Future[None]] = set()
        queue.before_close.append(self.stop)
        self.meter = Meter()

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

    async def claim(self, instance: UUID, limit: int) -> tuple[WorkerInfo, Claimed] | None:
        """Lease tasks to an instance; None if it is not known.  What is taken and cannot be told is given back."""
        queue, taken = self._queue, list[tuple[str, int]]()
        try:
            return await queue.database.arun(
                lambda: remote.claim_for(
                    instance,
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
                giving_back = asyncio.ensure_future(self._give_back(instance, taken))
                self._giving_back.add(giving_back)
                giving_back.add_done_callback(self._giving_back.discard)
            raise

    async def _give_back(self, instance: UUID, taken: list[tuple[str, int]]) -> None:
        """Try until the database is back: the worker knows nothing of these, and its heartbeat renews their leases."""
        while True:
            try:
                await self._queue.database.arun(lambda: remote.give_back_for(instance, taken, self._queue.clock.now()))
                return
            except (DatabaseUnavailable, DatabaseBusy, DatabaseFull):
                await asyncio.sleep(POLL_SECONDS)

    async def care(self) -> None:
        """Do the rest, if it was not done a moment ago: workers that speak HTTP may be the only ones there are."""
        self.watch()
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + CARE_SECONDS
        queue = self._queue
        await queue.afire_schedules()
        await flush(queue.database, self.meter, queue.clock.now())
        await queue.database.arun(lambda: numbers.keep_books(queue.clock.now()))


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


def _ended(request: Request, task: Task, outcome: str | None) -> AttemptEnded:
    if outcome is not None:
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
    secrets = secrets_of(queue.registry.get(task.name))
    return redactor_of(queue).texts(task.kwargs, task.headers, secrets).clean(text)


def _instance(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise _unknown(text) from None


def _task_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise TaskNotFound(text) from None


def _unknown(instance: str) -> Refused:
    detail = f"no worker has the instance {instance}; it may have been declared dead: register anew"
    return Refused(404, "worker-not-found", detail)
