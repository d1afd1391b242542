"""Why isn't it running?  The reasons a task waits, in the order in which they apply, each with its evidence.  Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from tasklib.core.lifecycle import Phase, phase_of
from tasklib.core.limits import Limit, Pause
from tasklib.core.queue_info import WorkerInfo
from tasklib.core.task import Task

MAX_AHEAD = 10_000
"""Tasks ahead are counted up to this; beyond it the text says `more than`."""


MAX_NAMES = 5
MAX_NAME = 60
"""How many names a text lists, and how many characters of each."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that keeps a task from running, or says why it will not.

    Examples:
        >>> queue.pause("add", by="ada")
        >>> reason = queue.explain(add.submit(1)).reasons[0]
        >>> reason.code, reason.remedy
        ('paused', ...)
    """

    code: str
    text: str
    evidence: Mapping[str, Any] = field(default_factory=dict[str, Any])
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a task is not running, or that it is.

    Examples:
        >>> queue.pause("add", by="ada")
        >>> explanation = queue.explain(add.submit(1))
        >>> [reason.code for reason in explanation.reasons]
        ['paused', 'no_worker']
    """

    task: Task
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        return "; ".join(reason.text for reason in self.reasons)


@dataclass(frozen=True, slots=True)
class LimitSeen:
    """A limit that holds for the task across all workers."""

    limit: Limit
    holders: tuple[str, ...]
    """Tasks that run under the limit now, at most as many as it allows."""


@dataclass(frozen=True, slots=True)
class KeySeen:
    """The concurrency key of the task."""

    key: str
    limit: int
    """How many of its tasks may run at once; 0 is unlimited."""
    holders: tuple[str, ...]
    """Its tasks that run now, at most as many as the limit allows."""
    name: str | None = None
    """The name that limit and holders are restricted to; None for all names together."""


@dataclass(frozen=True, slots=True)
class Children:
    """The children that a workflow waits for."""

    total: int
    ended: int
    failed: int
    cancelled: int
    oldest: Before | None = None
    """The first of those that have not ended."""
    oldest_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Before:
    """A task that is before another in its flow."""

    id: str
    name: str
    state: str


@dataclass(frozen=True, slots=True)
class Shortage:
    """What a workflow wants from a budget, and what the budget has now."""

    name: str
    cost: float
    burst: float
    tokens: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the database says, all at one moment."""

    task: Task
    now: datetime
    pauses: Sequence[Pause]
    workers: Sequence[WorkerInfo]
    limits: Sequence[LimitSeen]
    key: KeySeen | None
    ahead: int
    """Due tasks before it: of its key if it has one, else those of its workers' names that have none.  Paused
    names do not count."""
    running: Mapping[UUID, int] = field(default_factory=dict[UUID, int])
    """How many tasks of its name each worker instance runs, where some worker has a limit of its own."""
    children: Children | None = None
    """The tasks it waits for."""
    shortages: Sequence[Shortage] = ()
    """The budgets it waits for."""
    before: Sequence[Before] = ()
    """The tasks of its flow that are before it."""
    question: str | None = None
    """The question it asks a person."""
    held_by: UUID | None = None
    """The worker instance that runs it: another one may have the same `worker_id`."""


def explain(seen: Evidence) -> Explanation:
    """Every reason, in the order in which they hold the task back."""
    phase = phase_of(seen.task)
    if phase in (Phase.PENDING, Phase.RETRYING):
        reasons = tuple(_waiting(seen))
    elif phase is Phase.RUNNING:
        reasons = tuple(_running(seen))
    else:
        reasons = (_finished(seen, phase),)
    return Explanation(seen.task, reasons)


def _waiting(seen: Evidence) -> Iterator[Reason]:
    task, due = seen.task, seen.task.due_at
    if task.waits_for is not None:
        left = None if due is None else (due - seen.now).total_seconds()
        yield _suspended(task, task.waits_for, left, seen)
        if due is None or due > seen.now:
            return
    assert due is not None
    left = (due - seen.now).total_seconds()
    if task.expires_at is not None and task.expires_at <= seen.now:
        yield _expired(task.expires_at)
    if left > 0:
        yield _not_due(task, due, left)
    for pause in seen.pauses:
        yield _paused(pause)
    able = [worker for worker in seen.workers if worker.takes(task.name)]
    if not able:
        yield _nobody(seen)
    if left > 0:
        return  # who holds a slot or is ahead now says nothing about the time when it is due
    bound = (*_key_full(seen.key), *(reason for limit in seen.limits for reason in _limited(limit)))
    yield from bound
    if able:
        own = _own_limits(seen, able)
        yield from own
        yield from _queued(seen, able, ready=not bound and not own and not seen.pauses)


def _suspended(task: Task, waits_for: str, left: float | None, seen: Evidence) -> Reason:
    """A workflow that waits: for what, since when, and until when at most."""
    kind, _, name = waits_for.partition(" ")
    since = task.updated_at.isoformat(timespec="seconds")
    span = None if left is None else _span(max(left, 0.0))
    until = "" if span is None else f", in {span}"
    end = "it is woken" if task.due_at is None else task.due_at.isoformat(timespec="seconds")
    texts = {
        "sleep": f"it sleeps until {end}{until}",
        "retry": f"step {name!r} failed and is tried again{until}",
        "code": f"it has been parked since {since}: its code does not fit what it has recorded",
    }
    text = texts.get(
        kind, f"it has been waiting for {waits_for} since {since}" + ("" if span is None else f", gives up in {span}")
    )
    evidence: dict[str, Any] = {"waits_for": waits_for, "since": task.updated_at, "seconds": left}
    if kind == "children" and seen.children is not None:
        said, more = _children_left(seen.children)
        text, evidence = f"{text}: {said}", evidence | more
    if kind == "prerequisites" and seen.before:
        others = ", ".join(f"{each.name} ({each.state})" for each in seen.before[:MAX_NAMES])
        more_of_them = len(seen.before) - MAX_NAMES
        text = f"it runs after {others}" + (f" and {more_of_them:,} more" if more_of_them > 0 else "")
        evidence |= {"before": [{"id": each.id, "name": each.name, "state": each.state} for each in seen.before]}
    if kind == "answer" and seen.question is not None:
        gives_up = "" if span is None else f", gives up in {span}"
        text = f"it has been asking {seen.question!r} since {since}{gives_up}"
        remedy = f"answer it: tasklib answer {task.id} {name} JSON"
        return Reason("waiting", text, evidence | {"question": seen.question, "key": name}, remedy)
    if kind == "budget":
        text, more = _short(name, seen.shortages)
        text, evidence = f"{text}; tries again" + ("" if span is None else f" in {span}"), evidence | more
    if kind == "code":
        last = (task.error or "").strip().splitlines()[-1:]
        remedy = "start workers with code that fits, or resume it by hand: tasklib retry"
        return Reason("parked", text + (f" ({last[0]})" if last else ""), evidence | {"error": task.error}, remedy)
    return Reason("waiting", text, evidence, "wait, or cancel it")


def _children_left(children: Children) -> tuple[str, dict[str, Any]]:
    """How many children are left, how many failed, and which is the oldest that has not ended."""
    rest, lost = children.total - children.ended, children.failed + children.cancelled
    said = [f"{lost:,} failed"] if lost else []
    evidence: dict[str, Any] = {"children": children.total, "ended": children.ended, "failed": lost}
    if children.oldest is not None and children.oldest_since is not None:
        oldest, since = children.oldest, children.oldest_since.isoformat(timespec="seconds")
        said.append(f"the oldest is {oldest.name} {oldest.id}, {oldest.state}, since {since}")
        evidence["oldest"] = oldest.id
    return f"{rest:,} of {children.total:,} left" + (f" ({'; '.join(said)})" if said else ""), evidence


def _short(name: str, shortages: Sequence[Shortage]) -> tuple[str, dict[str, Any]]:
    """How much of a budget is missing now."""
    found = next((each for each in shortages if each.name == name), None)
    if found is None:
        return f"it waits for the budget {name}, which is not set any more", {"budget": name}
    missing = max(0.0, found.cost - found.tokens)
    seen: dict[str, Any] = {"budget": name, "cost": found.cost, "tokens": found.tokens, "short": missing}
    shown = f"{math.ceil(round(missing, 3)):,}" if missing >= 10 else f"{missing:,.2g}"
    return f"it is short of {shown} {name}", seen


def _not_due(task: Task, due: datetime, left: float) -> Reason:
    moment = due.isoformat(timespec="seconds")
    if task.next_retry_at is not None and task.retry_count:
        text = f"retry {task.retry_count} of {task.max_retries} at {moment}, in {_span(left)}, after a failed attempt"
        return Reason(
            "retry", text, {"next_retry_at": due, "seconds": left, "error": task.error}, "retry it now by hand"
        )
    text = f"due in {_span(left)}, at {moment}"
    return Reason("delayed", text, {"due_at": due, "seconds": left}, "wait, or submit it again without a delay")


def _expired(moment: datetime) -> Reason:
    text = f"expired at {moment.isoformat(timespec='seconds')}: it will be cancelled instead of started"
    return Reason("expired", text, {"expires_at": moment}, "submit it again with a later expires_at, or none")


def _paused(pause: Pause) -> Reason:
    what = "everything" if pause.name is None else f"tasks named {pause.name!r}"
    by, why = f" by {pause.by}" if pause.by else "", f": {pause.reason}" if pause.reason else ""
    text = f"{what} paused{by} since {pause.since.isoformat(timespec='seconds')}{why}"
    command = "tasklib resume" + (f" {pause.name}" if pause.name else "")
    evidence = {"name": pause.name, "by": pause.by, "since": pause.since, "reason": pause.reason}
    return Reason("paused", text, evidence, f"resume: {command}")


def _nobody(seen: Evidence) -> Reason:
    name = seen.task.name
    alive = [worker for worker in seen.workers if worker.alive]
    silent = [worker for worker in seen.workers if not worker.alive and name in worker.names]
    known = ", ".join(f"{worker.worker_id} ({_listed(worker.names) or 'no tasks'})" for worker in alive[:5])
    stopping = [worker.worker_id for worker in alive if name in worker.names]
    text = f"no live worker knows tasks named {name!r} (workers seen: {known or 'none'})"
    if stopping:
        text = (
            f"no worker takes tasks named {name!r} any more: {_some(stopping)} ends when its running tasks have ended"
        )
    if silent:
        text += f"; {silent[0].worker_id} knew them and stopped answering {_ago(seen, silent[0])} ago"
    evidence = {
        "workers": [worker.worker_id for worker in alive],
        "silent": [worker.worker_id for worker in silent],
        "stopping": stopping,
    }
    return Reason("no_worker", text, evidence, "start a worker whose code defines or handles this name")


def _limited(seen: LimitSeen) -> Iterator[Reason]:
    limit, holders = seen.limit, seen.holders
    what = "everything" if limit.name is None else f"tasks named {limit.name!r}"
    target = f" {limit.name}" if limit.name else ""
    if limit.rate is not None and limit.tokens is not None and limit.tokens < 1:
        seconds = (1 - limit.tokens) / limit.rate
        text = f"rate limit of {limit.rate:g}/s over {what} is used up, next slot in {_span(seconds)}"
        evidence = {"name": limit.name, "rate": limit.rate, "seconds": seconds}
        yield Reason("rate_limit", text, evidence, f"wait, or raise it: tasklib rate-limit N{target}")
    if limit.max_running is not None and len(holders) >= limit.max_running:
        text = f"concurrency {len(holders)}/{limit.max_running} over {what}, held by {_some(holders)}"
        using = {"name": limit.name, "limit": limit.max_running, "held_by": list(holders)}
        remedy = f"wait for one of them to end, or raise the limit: tasklib concurrency-limit N{target}"
        yield Reason("concurrency_limit", text, using, remedy)


def _key_full(seen: KeySeen | None) -> Iterator[Reason]:
    if seen is None or not seen.limit or len(seen.holders) < seen.limit:
        return
    what = f"key {seen.key!r}" if seen.name is None else f"key {seen.key!r} over tasks named {seen.name!r}"
    text = f"concurrency {len(seen.holders)}/{seen.limit} of {what}, held by {_some(seen.holders)}"
    evidence = {"key": seen.key, "name": seen.name, "limit": seen.limit, "held_by": list(seen.holders)}
    command = f"tasklib key-limit N {seen.key}" + (f" --name {seen.name}" if seen.name else "")
    yield Reason("key_limit", text, evidence, f"wait for one of them to end, or raise the limit: {command}")


def _own_limits(seen: Evidence, able: Sequence[WorkerInfo]) -> tuple[Reason, ...]:
    """The workers' own limits, if they keep every worker with a free slot from taking the task."""
    free = [worker for worker in able if worker.running < worker.concurrency]
    full = {worker.worker_id: _own_count(seen, worker) for worker in free}
    slow = {worker.worker_id: _own_rate(seen, worker) for worker in free}
    if not free or not all(full[worker.worker_id] or slow[worker.worker_id] for worker in free):
        return ()
    reasons = [each for worker in free for each in (full[worker.worker_id], slow[worker.worker_id]) if each]
    return tuple(reasons[:5])


def _own_count(seen: Evidence, worker: WorkerInfo) -> Reason | None:
    name, most = seen.task.name, worker.limits.get(seen.task.name, {}).get("max_running")
    running = seen.running.get(worker.instance, 0)
    if most is None or running < most:
        return None
    text = f"worker {worker.worker_id} runs {running}/{most:g} tasks named {name!r}, its own limit"
    evidence = {"worker_id": worker.worker_id, "limit": int(most), "running": running}
    remedy = "wait, add workers, or raise the worker's own limit: @task(max_concurrency=N), tq(...).set_worker_count(N)"
    return Reason("worker_limit", text, evidence, remedy)


def _own_rate(seen: Evidence, worker: WorkerInfo) -> Reason | None:
    own = worker.limits.get(seen.task.name, {})
    if "rate" not in own:
        return None
    rate = own["rate"]
    age = max(0.0, (seen.now - worker.heartbeat_at).total_seconds())
    tokens = min(max(1.0, rate), own.get("tokens", 0.0) + age * rate)
    if tokens >= 1 and not seen.ahead:
        return None
    seconds = max(0.0, (1 - tokens) / rate)
    what = f"{rate:g}/s tasks named {seen.task.name!r}"
    text = f"worker {worker.worker_id} starts at most {what}, next slot in {_span(seconds)}"
    evidence = {"worker_id": worker.worker_id, "rate": rate, "seconds": seconds}
    remedy = "wait, add workers, or raise the worker's own limit: tq(...).set_rate_limit(N)"
    return Reason("worker_rate_limit", text, evidence, remedy)


def _listed(names: Sequence[str]) -> str:
    """A few of the names, shortened: there may be hundreds, each as long as a line."""
    shown = [name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…" for name in names[:MAX_NAMES]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _some(holders: Sequence[str]) -> str:
    return ", ".join(holders[:3]) + (" …" if len(holders) > 3 else "")


def _queued(seen: Evidence, able: Sequence[WorkerInfo], *, ready: bool) -> Iterator[Reason]:
    slots = sum(worker.concurrency for worker in able)
    taken = sum(min(worker.running, worker.concurrency) for worker in able)
    if taken >= slots:
        holders = ", ".join(f"{worker.worker_id} ({worker.running})" for worker in able[:5])
        evidence = {"running": taken, "slots": slots, "workers": [worker.worker_id for worker in able]}
        text = f"all slots are taken: {taken}/{slots}, held by {holders}"
        yield Reason("busy", text, evidence, "wait, add workers, or raise their concurrency")
    if seen.ahead:
        more = "more than " if seen.ahead > MAX_AHEAD else ""
        count = min(seen.ahead, MAX_AHEAD)
        within = f" within key {seen.key.key!r}" if seen.key else ""
        text = f"{more}{count:,} {'task' if count == 1 else 'tasks'} ahead by priority and due time{within}"
        evidence = {"ahead": count, "capped": seen.ahead > MAX_AHEAD, "key": seen.key.key if seen.key else None}
        yield Reason("behind", text, evidence, "wait, or submit it with a higher priority")
    if ready and taken < slots and not seen.ahead:
        text = "nothing holds it back: a worker should start it within its poll interval"
        yield Reason("ready", text, {"slots": slots, "running": taken})


def _running(seen: Evidence) -> Iterator[Reason]:
    task = seen.task
    lease = (task.locked_until - seen.now).total_seconds() if task.locked_until else 0.0
    same = [worker for worker in seen.workers if worker.worker_id == task.worker_id]
    holder = next((worker for worker in same if seen.held_by in (None, worker.instance)), None)
    evidence = {"worker_id": task.worker_id, "locked_until": task.locked_until, "started_at": task.started_at}
    if task.cancel_requested_at is not None:
        yield Reason("cancelling", "it is running and was asked to stop", {"since": task.cancel_requested_at})
    if holder is None or not holder.alive:
        silence = "is gone" if holder is None else f"stopped answering {_ago(seen, holder)} ago"
        ends = f"lease ends in {_span(lease)}" if lease > 0 else f"lease ended {_span(-lease)} ago"
        text = f"it is running, but worker {task.worker_id} {silence}, {ends}"
        yield Reason("worker_silent", text, evidence, "any live worker recovers it; start one, or wait")
        return
    since = f", started {task.started_at.isoformat(timespec='seconds')}" if task.started_at else ""
    yield Reason("running", f"it is running on {task.worker_id}{since}", evidence)


def _finished(seen: Evidence, phase: Phase) -> Reason:
    task = seen.task
    moment = task.completed_at.isoformat(timespec="seconds") if task.completed_at else "unknown"
    last = (task.error or "").strip().splitlines()[-1:]
    texts = {
        Phase.COMPLETED: f"it completed at {moment}",
        Phase.CANCELLED: f"it was cancelled at {moment}",
        Phase.BURIED: f"it was buried at {moment}{_losses(task.lost_count)}",
        Phase.FAILED: f"it failed for good at {moment}, in attempt {task.attempts}",
    }
    text = texts[phase] + (f" ({last[0]})" if last and phase is not Phase.COMPLETED else "")
    remedy = None if phase is Phase.COMPLETED else "retry it by hand"
    return Reason(phase.value, text, {"completed_at": task.completed_at, "attempts": task.attempts}, remedy)


def _losses(count: int) -> str:
    if not count:
        return ""
    return f": {count} workers were lost while they ran it" if count > 1 else ": 1 worker was lost while it ran it"


def _ago(seen: Evidence, worker: WorkerInfo) -> str:
    return _span((seen.now - worker.heartbeat_at).total_seconds())


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
