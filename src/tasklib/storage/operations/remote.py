"""Workers that speak HTTP: what a worker in this process knows of itself is read from the database instead."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tasklib.codec import dumps
from tasklib.errors import ClaimLost, TaskNotFound
from tasklib.lifecycle import Ending
from tasklib.retry import Backoff
from tasklib.storage.operations import attempts, workers
from tasklib.storage.operations.attempts import NO_RETRIES, Claimed, Completion, Retries
from tasklib.storage.operations.clock import read_clock
from tasklib.storage.operations.tasks import get_task
from tasklib.storage.statement import BEGIN, Operation, Statement
from tasklib.task import Task, TaskState, WorkerInfo


@dataclass(frozen=True, slots=True)
class Holding:
    """What an instance holds, and which of it a person asked to cancel."""

    held: list[tuple[str, int]]
    cancel: set[str]


def find_worker(instance: UUID, now: datetime | None) -> Operation[WorkerInfo | None]:
    """The worker of this instance; None if it never was or was declared dead."""
    known = yield from workers.list_workers(now)
    return next((worker for worker in known if worker.instance == instance), None)


def claim_for(
    instance: UUID,
    *,
    limit: int,
    lease_seconds: float,
    now: datetime | None,
    taken: list[tuple[str, int]],
    retries: Retries = NO_RETRIES,
) -> Operation[tuple[WorkerInfo, Claimed] | None]:
    """Lease due tasks to an instance, of the names it registered; None if it is not known.

    `taken` holds their (id, version) pairs before the commit: if its answer is lost they must be given back.
    """
    taken.clear()
    yield BEGIN
    worker = yield from find_worker(instance, now)
    if worker is None:
        return None
    # Two claims of one instance at once would each forget what the other has just taken.
    own = yield Statement("lock_claims", {"dead": dumps([str(instance)])})
    if not own:
        return None
    held = yield from workers.list_held(instance)
    positions: list[tuple[int, int]] = []
    for task_id, version in held:  # by primary key: a list by ids reads the whole table on SQLite
        task = yield from get_task(UUID(task_id))
        if task is not None:
            positions.append((task.seq, version))
    claimed = yield from attempts.claim_tasks(
        instance=instance,
        worker_id=worker.worker_id,
        names=worker.names,
        limit=limit,
        lease_seconds=lease_seconds,
        held=positions,
        generation=own[0]["generation"],
        retries=retries,
        now=now,
    )
    taken += [(task.id, task.version) for task in claimed.tasks]
    return worker, claimed


def give_back_for(instance: UUID, taken: Sequence[tuple[str, int]], now: datetime | None) -> Operation[None]:
    """Give back what a claim took whose answer was lost, if it was committed at all; one that still is under way is
    waited for."""
    yield BEGIN
    yield Statement("lock_claims", {"dead": dumps([str(instance)])})
    yield from attempts.end_attempts([Ending.release(task_id, version) for task_id, version in taken], now)
    yield Statement("wake_workers")


def beat_for(instance: UUID, lease_seconds: float, now: datetime | None) -> Operation[Holding | None]:
    """Say that an instance is alive and move its leases forward; None if it was declared dead."""
    if not (yield from workers.beat(instance, None, now)):
        return None
    yield from workers.renew_held(instance, lease_seconds, now)
    held = yield from workers.list_held(instance)
    _, cancel = yield from attempts.find_cancel_requests(held)
    return Holding(held, cancel)


def complete_for(task_id: UUID, version: int, result: str, now: datetime | None) -> Operation[Task]:
    """End an attempt in success; its result is JSON text already."""
    yield BEGIN
    task = yield from _held(task_id, version)
    clock, moment = (yield from read_clock(now)), time.monotonic()
    elapsed = (clock - (task.started_at or clock)).total_seconds()
    done = Completion(str(task_id), version, result, moment - elapsed, moment)
    return (yield from _ended(task_id, version, (yield from attempts.complete_tasks([done], now))))


def fail_for(
    task_id: UUID,
    version: int,
    *,
    error: str,
    retry: bool,
    delay: float | None,
    backoff: Backoff,
    now: datetime | None,
) -> Operation[Task]:
    """End an attempt in failure: another one follows by the retry policy, unless none is left or none is wanted."""
    yield BEGIN
    task = yield from _held(task_id, version)
    if retry and task.retry_count < task.max_retries:
        wait = backoff(task.retry_count) if delay is None else delay
        ending = Ending.retry_later(str(task_id), version, delay=wait, error=error)
    else:
        ending = Ending.give_up(str(task_id), version, error=error)
    return (yield from _ended(task_id, version, (yield from attempts.end_attempts([ending], now))))


def end_for(ending: Ending, now: datetime | None) -> Operation[Task]:
    """End an attempt in another way: cancelled as asked, or given back."""
    yield BEGIN
    task_id = UUID(ending.task_id)
    yield from _held(task_id, ending.version)
    refused = yield from attempts.end_attempts([ending], now)
    yield Statement("wake_workers")
    return (yield from _ended(task_id, ending.version, refused))


def report_for(
    task_id: UUID, version: int, fraction: float, message: str | None, now: datetime | None
) -> Operation[Task]:
    """Keep how far an attempt has come."""
    task = yield from _held(task_id, version)
    yield from attempts.report_progress([(str(task_id), version, fraction, message)], now)
    return task


def _held(task_id: UUID, version: int) -> Operation[Task]:
    """The task, if this is the attempt that holds it."""
    task = yield from get_task(task_id)
    if task is None:
        raise TaskNotFound(task_id)
    if task.state is not TaskState.RUNNING or task.version != version:
        raise ClaimLost(task_id, version, task.state)
    return task


def _ended(task_id: UUID, version: int, refused: set[str]) -> Operation[Task]:
    task = yield from get_task(task_id)
    if refused or task is None:
        raise ClaimLost(task_id, version, None if task is None else task.state)
    return task
