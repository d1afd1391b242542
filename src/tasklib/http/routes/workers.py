"""Workers in any language: register, claim, send heartbeats, and end each attempt with its fencing token."""

from __future__ import annotations

import math
import os
from typing import Annotated
from uuid import UUID, uuid4

from fastapi import APIRouter, Depends, Request

from tasklib.core.codec import encode_result
from tasklib.core.outcome import Reported
from tasklib.errors import ClaimLost, ResultError, TaskNotFound
from tasklib.http.admission.audit import AuditedRoute, audit_of
from tasklib.http.errors import Refused
from tasklib.http.parts import Service, parts_of
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
    LogInput,
    Progress,
    Register,
    Registered,
    SnoozeInput,
)
from tasklib.http.security.auth import Permission, needs, principal_of
from tasklib.service.http_workers.upkeep import CARE_SECONDS
from tasklib.service.http_workers.workers import MAX_OWNED, HttpWorkers, OwnedInstance, Registration, TooManyWorkers

router = APIRouter(prefix="/api/workers", tags=["workers"], route_class=AuditedRoute)
ending_router = APIRouter(prefix="/api/tasks/{task_id}", tags=["workers"], route_class=AuditedRoute)


def _owned_instance(instance: str, request: Request) -> OwnedInstance:
    try:
        return OwnedInstance(UUID(instance), principal_of(request).identity)
    except ValueError:
        raise _unknown(instance) from None


def _parsed(task_id: str) -> UUID:
    try:
        return UUID(task_id)
    except ValueError:
        raise TaskNotFound(task_id) from None


def _workers(request: Request) -> HttpWorkers:
    return parts_of(request).workers


def _owner(request: Request) -> str:
    return principal_of(request).identity


Worker = Annotated[OwnedInstance, Depends(_owned_instance)]
TaskId = Annotated[UUID, Depends(_parsed)]
Workers = Annotated[HttpWorkers, Depends(_workers)]
Owner = Annotated[str, Depends(_owner)]


@router.post("", status_code=201, **needs(Permission.WORK, 400, 413, 429))
async def register_worker(
    body: Register, request: Request, service: Service, workers: Workers, owner: Owner
) -> Registered:
    """Register a worker; it may then claim tasks, and only the token that registered it may act for it."""
    config = service.queue.config
    timeout = body.timeout_seconds or config.worker_timeout_seconds
    who = Registration(
        instance=uuid4(),
        worker_id=body.worker_id,
        host=body.host,
        pid=os.getpid(),
        timeout_seconds=timeout,
        concurrency=body.concurrency,
        names=tuple(body.types),
        owner=owner,
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
        lease_seconds=config.lock_timeout_seconds,
    )


@router.post("/{instance}/claim", **needs(Permission.WORK, 400, 404, 413))
async def claim(worker: Worker, request: Request, workers: Workers, body: Claim | None = None) -> ClaimedTasks:
    """Claim due tasks; if none is due, wait up to `waitSeconds` for the first."""
    wanted = body or Claim()
    tasks = await workers.claim(worker, wanted.limit, wanted.wait_seconds, request.is_disconnected)
    if tasks is None:
        raise _unknown(worker.instance)
    root = request.scope.get("root_path", "")
    return ClaimedTasks(tasks=[ClaimedTask.with_steps(task, steps, root) for task, steps in tasks])


@router.post("/{instance}/heartbeat", **needs(Permission.WORK, 400, 404, 413))
async def beat(worker: Worker, workers: Workers) -> Beat:
    """Send a heartbeat, which renews the worker's leases.  404: it was declared dead, register again."""
    holding = await workers.beat(worker)
    if holding is None:
        raise _unknown(worker.instance)
    held = [
        Held(id=UUID(task_id), version=version, cancel_requested=task_id in holding.cancel)
        for task_id, version in holding.held
    ]
    return Beat(tasks=held)


@router.delete("/{instance}", status_code=204, **needs(Permission.WORK, 400, 404, 413))
async def stop_worker(worker: Worker, request: Request, workers: Workers) -> None:
    """Deregister a worker: the tasks it holds are released and spend no attempt."""
    await workers.astop_worker(worker, audit=audit_of(request))


@ending_router.post("/complete", **needs(Permission.WORK, 400, 404, 409, 413))
async def complete(
    task_id: TaskId, body: Complete, request: Request, service: Service, workers: Workers, owner: Owner
) -> AttemptEnded:
    """The attempt succeeded.  409: it no longer holds the task, and nothing changed."""
    try:
        result = encode_result(body.result, limit=service.queue.config.max_result_bytes)
    except ResultError as error:
        raise Refused(400, "invalid-result", str(error), field="result") from error
    task = await workers.complete(task_id, body.version, result, owner, audit_of(request, version=body.version))
    if task is None:
        raise ClaimLost(task_id, body.version, "timed out")
    return AttemptEnded.of(task)


@ending_router.post("/fail", **needs(Permission.WORK, 400, 404, 409, 413))
async def fail(task_id: TaskId, body: Fail, request: Request, workers: Workers, owner: Owner) -> AttemptEnded:
    """The attempt failed; the task is retried by its policy while attempts are left."""
    audit = audit_of(request, version=body.version)
    reported = Reported(body.error, body.retry, body.delay_seconds)
    return AttemptEnded.of(await workers.fail(task_id, body.version, reported, owner, step=body.step, audit=audit))


@ending_router.post("/stopped", **needs(Permission.WORK, 400, 404, 409, 413))
async def stopped(task_id: TaskId, body: End, request: Request, workers: Workers, owner: Owner) -> AttemptEnded:
    """The attempt was stopped because a person asked to cancel it.  400: nobody has, and nothing changed."""
    audit = audit_of(request, version=body.version)
    return AttemptEnded.of(await workers.end_cancelled(task_id, body.version, owner, audit))


@ending_router.post("/snooze", **needs(Permission.WORK, 400, 404, 409, 413))
async def snooze(task_id: TaskId, body: SnoozeInput, request: Request, workers: Workers, owner: Owner) -> AttemptEnded:
    """Run the task again after `delaySeconds`; the attempt is not spent."""
    audit = audit_of(request, version=body.version, delaySeconds=body.delay_seconds)
    return AttemptEnded.of(await workers.snooze(task_id, body.version, owner, delay=body.delay_seconds, audit=audit))


@ending_router.post("/release", **needs(Permission.WORK, 400, 404, 409, 413))
async def release(task_id: TaskId, body: End, request: Request, workers: Workers, owner: Owner) -> AttemptEnded:
    """Release the task; the attempt is not spent."""
    audit = audit_of(request, version=body.version)
    return AttemptEnded.of(await workers.release(task_id, body.version, owner, audit))


@ending_router.post("/progress", status_code=204, **needs(Permission.WORK, 400, 404, 409, 413))
async def report(task_id: TaskId, body: Progress, workers: Workers, owner: Owner) -> None:
    """Store the progress of the attempt, from 0 to 1."""
    await workers.areport(task_id, body.version, owner, body.progress, body.message)


@ending_router.post("/log", status_code=204, **needs(Permission.WORK, 400, 404, 409, 413))
async def log(task_id: TaskId, body: LogInput, workers: Workers, owner: Owner) -> None:
    """Keep lines that the attempt logs: the latest 200 of a task, 500 characters of each, without its secrets."""
    await workers.alog(task_id, body.version, owner, [(line.level, line.text) for line in body.lines])


def _too_many() -> Refused:
    detail = (
        f"this caller has {MAX_OWNED} workers registered, which is the maximum; remove those that are not needed "
        "with DELETE, or wait until those that are gone are declared dead"
    )
    return Refused(429, "too-many-workers", detail, headers={"Retry-After": str(math.ceil(CARE_SECONDS))})


def _unknown(instance: object) -> Refused:
    detail = f"no worker has the instance {instance}; it may have been declared dead: register again"
    return Refused(404, "worker-not-found", detail)
