"""Workers in any language: register, claim, beat, and end each attempt under its fencing token."""

from __future__ import annotations

import math
import os
from collections.abc import Generator
from contextlib import contextmanager
from uuid import UUID, uuid4

from fastapi import APIRouter, Request

from tasklib.core.codec import encode_result, number
from tasklib.core.task import Task
from tasklib.errors import ClaimLost, ResultError, TaskNotFound
from tasklib.http.admission.audit import AuditedRoute, audit_of
from tasklib.http.errors import Refused, problems
from tasklib.http.parts import Queue, parts_of
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
from tasklib.http.security.auth import Permission, needs, principal_of
from tasklib.service.http_workers.upkeep import CARE_SECONDS
from tasklib.service.http_workers.workers import MAX_OWNED, NotYours, Registration, Remote, TooManyWorkers

router = APIRouter(prefix="/api/workers", tags=["workers"], route_class=AuditedRoute)
ending_router = APIRouter(prefix="/api/tasks/{task_id}", tags=["workers"], route_class=AuditedRoute)

ERRORS = problems(400, 401, 403, 404, 413, 503)
ENDING_ERRORS = problems(400, 401, 403, 404, 409, 413, 503)


@router.post("", status_code=201, responses=problems(400, 401, 403, 413, 429, 503), **needs(Permission.WORK))
async def register_worker(body: Register, request: Request, queue: Queue) -> Registered:
    """Register a worker; it may then claim tasks, and only the token that registered it may act for it."""
    workers, timeout = parts_of(request).workers, body.timeout_seconds or queue.config.worker_timeout_seconds
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
    audit = audit_of(request, instance=str(who.instance), workerId=who.worker_id, host=who.host)
    try:
        await workers.aregister(who, audit=audit)
    except TooManyWorkers:
        await workers.upkeep.care()  # some of them may be dead
        raise _too_many() from None
    return Registered(
        instance=who.instance,
        heartbeat_seconds=timeout / 4,
        timeout_seconds=timeout,
        lease_seconds=queue.config.lock_timeout_seconds,
    )


@router.post("/{instance}/claim", responses=ERRORS, **needs(Permission.WORK))
async def claim(instance: str, request: Request, body: Claim | None = None) -> ClaimedTasks:
    """Claim due tasks; if none is due, wait up to `waitSeconds` for the first."""
    who, wanted = _remote(instance, request), body or Claim()
    with _own_workers_only():
        tasks = await parts_of(request).workers.claim(who, wanted.limit, wanted.wait_seconds, request.is_disconnected)
    if tasks is None:
        raise _unknown(instance)
    return ClaimedTasks(tasks=[_claimed(task) for task in tasks])


@router.post("/{instance}/heartbeat", responses=ERRORS, **needs(Permission.WORK))
async def beat(instance: str, request: Request) -> Beat:
    """Send a heartbeat, which renews the worker's leases.  404: it was declared dead, register again."""
    with _own_workers_only():
        holding = await parts_of(request).workers.beat(_remote(instance, request))
    if holding is None:
        raise _unknown(instance)
    held = [
        Held(id=UUID(task_id), version=version, cancel_requested=task_id in holding.cancel)
        for task_id, version in holding.held
    ]
    return Beat(tasks=held)


@router.delete("/{instance}", status_code=204, responses=ERRORS, **needs(Permission.WORK))
async def stop_worker(instance: str, request: Request) -> None:
    """Deregister a worker: the tasks it holds are released and spend no attempt."""
    who = _remote(instance, request)
    with _own_workers_only():
        await parts_of(request).workers.astop_worker(who, audit=audit_of(request))


@ending_router.post("/complete", responses=ENDING_ERRORS, **needs(Permission.WORK))
async def complete(task_id: str, body: Complete, request: Request, queue: Queue) -> AttemptEnded:
    """The attempt succeeded.  409: it no longer holds the task, and nothing changed."""
    parsed, owner = _task_id(task_id), principal_of(request).identity
    try:
        result = encode_result(body.result, limit=queue.config.max_result_bytes)
    except ResultError as error:
        raise Refused(400, "invalid-result", str(error), field="result") from error
    audit = audit_of(request, version=body.version)
    with _own_workers_only():
        task = await parts_of(request).workers.complete(parsed, body.version, result, owner, audit)
    if task is None:
        raise ClaimLost(parsed, body.version, "timed out")
    return _ended(task)


@ending_router.post("/fail", responses=ENDING_ERRORS, **needs(Permission.WORK))
async def fail(task_id: str, body: Fail, request: Request) -> AttemptEnded:
    """The attempt failed; the task is retried by its policy while attempts are left."""
    parsed, owner = _task_id(task_id), principal_of(request).identity
    audit = audit_of(request, version=body.version)
    with _own_workers_only():
        task = await parts_of(request).workers.fail(
            parsed, body.version, owner, error=body.error, retry=body.retry, delay=body.delay_seconds, audit=audit
        )
    return _ended(task)


@ending_router.post("/stopped", responses=ENDING_ERRORS, **needs(Permission.WORK))
async def stopped(task_id: str, body: End, request: Request) -> AttemptEnded:
    """The attempt was stopped because a person asked to cancel it."""
    parsed, owner = _task_id(task_id), principal_of(request).identity
    audit = audit_of(request, version=body.version)
    with _own_workers_only():
        return _ended(await parts_of(request).workers.end_cancelled(parsed, body.version, owner, audit))


@ending_router.post("/release", responses=ENDING_ERRORS, **needs(Permission.WORK))
async def release(task_id: str, body: End, request: Request) -> AttemptEnded:
    """Release the task; the attempt is not spent."""
    parsed, owner = _task_id(task_id), principal_of(request).identity
    audit = audit_of(request, version=body.version)
    with _own_workers_only():
        return _ended(await parts_of(request).workers.release(parsed, body.version, owner, audit))


@ending_router.post("/progress", status_code=204, responses=ENDING_ERRORS, **needs(Permission.WORK))
async def report(task_id: str, body: Progress, request: Request) -> None:
    """Store the progress of the attempt, from 0 to 1."""
    parsed, owner = _task_id(task_id), principal_of(request).identity
    with _own_workers_only():
        await parts_of(request).workers.areport(parsed, body.version, owner, body.progress, body.message)


def _claimed(task: Task) -> ClaimedTask:
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


def _ended(task: Task) -> AttemptEnded:
    return AttemptEnded(
        id=task.id, status=status_of(task.state), attempts=task.attempts, next_retry_at=task.next_retry_at
    )


def _too_many() -> Refused:
    detail = (
        f"this caller has {MAX_OWNED} workers registered, and more are not kept; stop those that are not "
        "needed by DELETE, or wait until those that are gone are declared dead"
    )
    return Refused(429, "too-many-workers", detail, headers={"Retry-After": str(math.ceil(CARE_SECONDS))})


@contextmanager
def _own_workers_only() -> Generator[None]:
    """403 if the request is about a worker that somebody else registered."""
    try:
        yield
    except NotYours:
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
    detail = f"no worker has the instance {instance}; it may have been declared dead: register again"
    return Refused(404, "worker-not-found", detail)
