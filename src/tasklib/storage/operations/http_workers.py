"""Workers over HTTP: what a worker process keeps in memory is read from the database here.

Only the caller that registered an instance may claim, send heartbeats, end attempts and stop for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from tasklib.core.calls.task_logger import fitting
from tasklib.core.codec import dumps, loads
from tasklib.core.lifecycle import Ending
from tasklib.core.outcome import Cancelled, Outcome, Reported, TimedOut, completed, decide
from tasklib.core.redaction import Texts
from tasklib.core.retry import Backoff
from tasklib.core.task import LogLine, Task, TaskState
from tasklib.core.texts.error_text import ERROR_CHARACTERS, bounded
from tasklib.errors import ClaimLost, InvalidTransition
from tasklib.storage.operations import attempts, claims, workers
from tasklib.storage.operations.claims import NO_RETRIES, Claimed, Retries
from tasklib.storage.operations.clock import read_clock
from tasklib.storage.operations.tasks import get_task, require_task
from tasklib.storage.statement import BEGIN, Operation, Statement


class NotOwner(Exception):
    """Another caller registered the instance."""


MAX_OWNED: Final = 1000
"""Instances that one caller may have registered at a time."""


class TooManyWorkers(Exception):
    """The caller has as many instances as it may have."""


@dataclass(frozen=True, slots=True)
class OwnedInstance:
    """An instance, and the caller that registered it."""

    instance: UUID
    owner: str


@dataclass(frozen=True, slots=True)
class RegisteredWorker:
    """The name of a registered instance's worker, and the tasks that it takes."""

    worker_id: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeldAttempts:
    """The attempts that an instance holds, and the ids of those that a person asked to cancel."""

    held: list[tuple[str, int]]
    cancel: set[str]


@dataclass(frozen=True, slots=True)
class Ended:
    """The task after its attempt, and whether it is this call that ended it."""

    task: Task
    now: bool = True
    """False if the attempt had ended in this way before: the call was repeated after a lost reply."""


@dataclass(frozen=True, slots=True)
class EndedOvertime:
    """The attempts that were ended past their timeouts, and when the next one is due; None if none has a timeout."""

    ended: list[Task]
    next_in: float | None


def register_for(who: workers.Registration) -> Operation[None]:
    """Register an instance, unless its owner has MAX_OWNED others: no caller can fill the table."""
    yield BEGIN
    asked = {"owner": who.owner, "instance": str(who.instance)}
    if (yield Statement("count_owned_workers", asked))[0]["found"] >= MAX_OWNED:
        raise TooManyWorkers
    yield from workers.register_worker(who)


def find_worker(who: OwnedInstance) -> Operation[RegisteredWorker | None]:
    """What was registered of the instance; None if it never was or was declared dead."""
    rows = yield Statement("find_worker", {"instance": str(who.instance)})
    if not rows:
        return None
    if rows[0]["owner"] != who.owner:
        raise NotOwner
    return RegisteredWorker(rows[0]["worker_id"], tuple(loads(rows[0]["names"])))


def claim_for(
    who: OwnedInstance, *, limit: int, lease_seconds: float, taken: list[tuple[str, int]], retries: Retries = NO_RETRIES
) -> Operation[tuple[RegisteredWorker, Claimed] | None]:
    """Claim due tasks of the names that the instance registered; None if it is not registered.

    `taken` holds their (id, version) pairs before the commit: if its answer is lost they must be released.
    """
    taken.clear()
    yield BEGIN
    worker = yield from find_worker(who)
    if worker is None:
        return None
    # Two concurrent claims of one instance would each overwrite what the other has just taken.
    own = yield Statement("lock_claims", {"dead": dumps([str(who.instance)])})
    if not own:
        return None
    held = yield from workers.list_held(who.instance)
    positions: list[tuple[int, int]] = []
    for task_id, version in held:  # by primary key: a list by ids reads the whole table on SQLite
        task = yield from get_task(UUID(task_id))
        if task is not None:
            positions.append((task.seq, version))
    claimed = yield from claims.claim_tasks(
        claims.Claim(
            instance=who.instance,
            worker_id=worker.worker_id,
            names=worker.names,
            limit=limit,
            lease_seconds=lease_seconds,
            held=positions,
            generation=own[0]["generation"],
            retries=retries,
        )
    )
    taken += [(task.id, task.version) for task in claimed.tasks]
    return worker, claimed


def release_claimed(instance: UUID, taken: Sequence[tuple[str, int]]) -> Operation[None]:
    """Release the tasks of a claim whose answer was lost, if it was committed; waits while the claim still runs."""
    yield BEGIN
    yield Statement("lock_claims", {"dead": dumps([str(instance)])})
    yield from attempts.end_attempts([Ending.release(task_id, version) for task_id, version in taken])
    yield Statement("wake_workers")


def beat_for(who: OwnedInstance, lease_seconds: float) -> Operation[HeldAttempts | None]:
    """Record a heartbeat and move the leases of the instance forward; None if it was declared dead."""
    if (yield from find_worker(who)) is None or not (yield from workers.beat(who.instance, None)):
        return None
    yield from workers.renew_held(who.instance, lease_seconds)
    held = yield from workers.list_held(who.instance)
    _, cancel = yield from attempts.find_cancel_requests(held)
    return HeldAttempts(held, cancel)


def stop_for(who: OwnedInstance) -> Operation[int | None]:
    """Remove an instance and release what it holds; how many tasks, or None if it is not registered."""
    if (yield from find_worker(who)) is None:
        return None
    return (yield from workers.release_held(who.instance))


def complete_for(task_id: UUID, version: int, result: str, owner: str, *, backoff: Backoff) -> Operation[Ended | None]:
    """End an attempt in success, its result given as JSON text; None if it was past its timeout, and so has failed."""
    yield BEGIN
    task = yield from require_task(task_id)
    if not _is_current(task, version):
        if task.result == loads(result) and (
            yield from attempts.is_recorded(str(task_id), version, str(TaskState.COMPLETED), None)
        ):
            return Ended(task, now=False)
        raise ClaimLost(task_id, version, task.state)
    yield from require_holder(task, owner)
    clock = yield from read_clock()
    elapsed = (clock - (task.started_at or clock)).total_seconds()
    if task.timeout_seconds is not None and elapsed > task.timeout_seconds:
        yield from attempts.end_attempts([_out_of_time(task, backoff)])
        return None
    done = completed(task, result, -elapsed, 0.0)
    return (yield from _ended(task_id, version, (yield from attempts.complete_tasks([done], moment=0.0))))


def end_overtime(backoff: Backoff) -> Operation[EndedOvertime]:
    """End the attempts of workers over HTTP that have run past their timeouts."""
    yield BEGIN
    rows = yield Statement("list_timed")
    over = {str(row["id"]): row["version"] for row in rows if row["seconds"] <= 0}
    endings: list[Ending] = []
    for task_id, version in over.items():
        task = yield from get_task(UUID(task_id))
        if task is not None and _is_current(task, version):
            endings.append(_out_of_time(task, backoff))
    refused = (yield from attempts.end_attempts(endings)) if endings else set[str]()
    ended: list[Task] = []
    for ending in endings:
        task = None if ending.task_id in refused else (yield from get_task(UUID(ending.task_id)))
        if task is not None:
            ended.append(task)
    return EndedOvertime(
        ended, min((row["seconds"] for row in rows if row["seconds"] > 0), default=0.0 if over else None)
    )


def _out_of_time(task: Task, backoff: Backoff) -> Ending:
    return decide(task, TimedOut(task.timeout_seconds or 0, task.cancel_requested_at is not None), backoff)


def fail_for(
    task_id: UUID, version: int, reported: Reported, owner: str, *, backoff: Backoff, step: str | None = None
) -> Operation[Ended]:
    """End an attempt in failure: another one follows by the retry policy, unless none is left or none is wanted.

    `step` is the one whose recorded failure it is: the next attempt may run it again.
    """
    yield BEGIN
    task = yield from require_task(task_id)
    # After the end the row no longer shows how many retries were left; both ways to fail are recorded alike.
    ending = replace(decide(task, reported, backoff), version=version, reopen=step)
    return (yield from _end(task, ending, owner))


def end_for(task_id: UUID, version: int, outcome: Outcome, owner: str, *, backoff: Backoff) -> Operation[Ended]:
    """End an attempt in another way: cancelled as requested, snoozed, or released."""
    yield BEGIN
    task = yield from require_task(task_id)
    if isinstance(outcome, Cancelled) and _is_current(task, version) and task.cancel_requested_at is None:
        yield from require_holder(task, owner)
        raise InvalidTransition(task_id, task.state, "stop", "running and somebody has asked to cancel it", _NOT_ASKED)
    ended = yield from _end(task, replace(decide(task, outcome, backoff), version=version), owner)
    yield Statement("wake_workers")
    return ended


_NOT_ASKED: Final = "end the attempt by /complete, /fail, /snooze or /release, or ask for a cancel by /cancel first"


def report_for(task_id: UUID, version: int, owner: str, fraction: float, message: str | None) -> Operation[None]:
    """Store the progress of an attempt."""
    yield from require_attempt(task_id, version, owner)
    yield from attempts.report_progress([(str(task_id), version, fraction, message)])


def log_for(
    task_id: UUID, version: int, owner: str, lines: Sequence[tuple[str, str]], hide: Callable[[Task], Texts]
) -> Operation[None]:
    """Keep lines that an attempt has logged, each a level and a text, cut and without the task's secrets."""
    task = yield from require_attempt(task_id, version, owner)
    clock = yield from read_clock()
    elapsed, texts = max(0.0, (clock - (task.started_at or clock)).total_seconds()), hide(task)
    kept = [LogLine(task.attempts, elapsed, level, fitting(texts.text(text))) for level, text in lines]
    yield from attempts.append_log({(str(task_id), version): kept})


def _end(task: Task, ending: Ending, owner: str) -> Operation[Ended]:
    if not _is_current(task, ending.version):
        same_error = ending.error is None or task.error == bounded(ending.error, ERROR_CHARACTERS)
        if same_error and (yield from attempts.is_recorded(*attempts.ended_as(ending))):
            return Ended(task, now=False)
        raise ClaimLost(task.id, ending.version, task.state)
    yield from require_holder(task, owner)
    refused = yield from attempts.end_attempts([ending])
    return (yield from _ended(task.id, ending.version, refused))


def _is_current(task: Task, version: int) -> bool:
    return task.state is TaskState.RUNNING and task.version == version


def require_attempt(task_id: UUID, version: int, owner: str) -> Operation[Task]:
    """The task, if this attempt at it is running on a worker that the caller registered; else ClaimLost or NotOwner."""
    task = yield from require_task(task_id)
    if not _is_current(task, version):
        raise ClaimLost(task_id, version, task.state)
    yield from require_holder(task, owner)
    return task


def require_holder(task: Task, owner: str) -> Operation[None]:
    """Refuse a caller that did not register the instance that runs the task."""
    rows = yield Statement("find_holder", {"seq": task.seq, "version": task.version})
    if not any(row["owner"] == owner for row in rows):
        raise NotOwner


def _ended(task_id: UUID, version: int, refused: set[str]) -> Operation[Ended]:
    task = yield from get_task(task_id)
    if refused or task is None:
        raise ClaimLost(task_id, version, None if task is None else task.state)
    return Ended(task)
