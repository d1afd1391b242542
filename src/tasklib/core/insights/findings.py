"""What is wrong now: each finding says since when, how many tasks it concerns, and what can be done.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Literal
from uuid import UUID

from tasklib.core.insights.error_marks import ErrorMark, Status, status_of
from tasklib.core.insights.objectives import ObjectiveStatus
from tasklib.core.limits import Pause
from tasklib.core.queue_info import EndedWorker, ErrorGroup, QueueStats, WorkerInfo
from tasklib.core.schedule import Schedule

NEW: Final = timedelta(hours=1)
"""How long an error group counts as new, and a lost worker is reported."""
LATE: Final = timedelta(minutes=1)
"""A schedule that is due for longer than this was missed."""
MOST_OF_THE_SLOTS: Final = 0.8
"""If one type has at least this part of the slots, it counts as holding all of them."""
MOST_OF_A_KIND: Final = 10


class Severity(StrEnum):
    """How urgent it is, the most urgent first."""

    CRITICAL = "critical"
    """Nothing runs."""
    WARNING = "warning"
    """Some tasks do not run, or fail."""
    INFO = "info"
    """Worth knowing."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """Something that can be done about a finding."""

    action: Literal[
        "resume", "redrive", "tasks", "task", "workers", "schedules", "limits", "questions", "latency", "errors"
    ]
    """`resume` a type, `redrive` an error group; the others are where to look."""
    label: str
    target: str | None = None
    """The type, group, task or schedule that is meant; None for all."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong now."""

    code: str
    severity: Severity
    text: str
    since: datetime | None = None
    count: int = 0
    """How many tasks it concerns."""
    name: str | None = None
    """The task name it is about; None if it is about more than one."""
    remedies: tuple[Remedy, ...] = ()
    alike: int = 1
    """How many findings of this kind it stands for."""


@dataclass(frozen=True, slots=True)
class Parked:
    """Workflows of one name that wait for code which fits what they have recorded."""

    name: str
    count: int
    since: datetime | None
    example: UUID


@dataclass(frozen=True, slots=True)
class Situation:
    """What the database says, all at about one moment."""

    now: datetime
    stats: QueueStats
    pauses: Sequence[Pause]
    workers: Sequence[WorkerInfo]
    ended: Sequence[EndedWorker] = ()
    errors: Sequence[ErrorGroup] = ()
    more_errors: Sequence[ErrorGroup] = ()
    """Errors that are new or back like some of `errors`, but are only counted."""
    schedules: Sequence[Schedule] = ()
    marks: Mapping[str, ErrorMark] = field(default_factory=dict[str, ErrorMark])
    """What people decided about groups of errors, by the id of the group."""
    objective_statuses: Sequence[ObjectiveStatus] = ()
    """How objectives stand over the last day."""
    questions: Sequence[datetime] = ()
    """When each open question to a person was asked, the oldest first."""
    parked: Sequence[Parked] = ()
    releases: Mapping[str, str] = field(default_factory=dict[str, str])
    """By the id of an error group: the release of the worker that ran into it last."""


def find(seen: Situation) -> tuple[Finding, ...]:
    """Everything that is wrong, the most urgent first; of one urgency what concerns the most tasks, each."""
    found = [
        *_paused(seen),
        *_without_workers(seen),
        *_unhandled(seen),
        *_full(seen),
        *_parked(seen),
        *_new_errors(seen),
        *_returned_errors(seen),
        *_more_errors(seen),
        *_lost_workers(seen),
        *_silent_workers(seen),
        *_stuck(seen),
        *_missed_schedules(seen),
        *_objectives_at_risk(seen),
        *_open_questions(seen),
    ]
    order = list(Severity)
    return tuple(sorted(found, key=lambda each: (order.index(each.severity), -each.count / each.alike, each.text)))


def _first_of(found: Sequence[Finding], what: str, look: Remedy) -> Iterator[Finding]:
    """The first of a kind, and one finding that counts the others."""
    yield from found[:MOST_OF_A_KIND]
    if rest := found[MOST_OF_A_KIND:]:
        count = sum(each.count for each in rest)
        text = f"{len(rest)} more {what}"
        yield Finding(rest[0].code, rest[0].severity, text, None, count, None, (look,), alike=len(rest))


def _waiting(seen: Situation, name: str) -> int:
    """Tasks of a name that are due or wait for a retry; not those that are delayed or wait for an event."""
    counts = seen.stats.by_name.get(name, {})
    later = counts.get("delayed", 0) + counts.get("waiting", 0)
    return counts.get("pending", 0) - later + counts.get("retrying", 0)


def _paused(seen: Situation) -> Iterator[Finding]:
    for pause in sorted(seen.pauses, key=lambda each: each.name or ""):
        names = seen.stats.by_name if pause.name is None else [pause.name]
        waiting = sum(_waiting(seen, name) for name in names)
        what = "Everything" if pause.name is None else pause.name
        text = f"{what} is paused{f' by {pause.by}' if pause.by else ''}{f': {pause.reason}' if pause.reason else ''}"
        severity = Severity.CRITICAL if pause.name is None else Severity.WARNING if waiting else Severity.INFO
        remedies = (Remedy("resume", "Resume", pause.name), Remedy("tasks", "Waiting tasks", pause.name))
        yield Finding("paused", severity, text, pause.since, waiting, pause.name, remedies)


def _unhandled_names(seen: Situation) -> dict[str, int]:
    """How many tasks wait, by name, of names that are not paused and that no worker takes."""
    handled = {name for worker in seen.workers for name in worker.names if worker.takes(name)}
    paused = {pause.name for pause in seen.pauses}
    waiting = {name: _waiting(seen, name) for name in seen.stats.by_name if name not in handled and name not in paused}
    return {name: count for name, count in waiting.items() if count > 0}


def _silent(seen: Situation) -> list[WorkerInfo]:
    """Workers that have sent no heartbeat for too long and whose tasks are not recovered yet, the latest first."""
    return sorted((each for each in seen.workers if not each.alive), key=lambda each: each.heartbeat_at, reverse=True)


def _left_behind(seen: Situation) -> int:
    """How many tasks wait although no worker is alive, including those that silent workers hold."""
    if any(worker.alive for worker in seen.workers):
        return 0
    return sum(_unhandled_names(seen).values()) + sum(worker.running for worker in _silent(seen))


def _without_workers(seen: Situation) -> Iterator[Finding]:
    count, silent = _left_behind(seen), _silent(seen)
    if not count:
        return
    if silent:
        last, many = silent[0], len(silent) > 1
        who = f"The last {len(silent)} workers" if many else f"The last worker, {last.worker_id} on {last.host},"
        text = f"{who} ended without saying goodbye, {_tasks(count)} {'waits' if count == 1 else 'wait'}"
    else:
        text = f"No worker is running, {_tasks(count)} waiting"
    remedies = (Remedy("workers", "Workers"), Remedy("tasks", "Waiting tasks"))
    since = silent[0].heartbeat_at if silent else None
    text += "; start one: tasklib worker app.tasks"
    yield Finding("no_workers", Severity.CRITICAL, text, since, count, None, remedies)


def _unhandled(seen: Situation) -> Iterator[Finding]:
    if not any(worker.alive for worker in seen.workers):
        return
    waiting = _unhandled_names(seen)
    found: list[Finding] = []
    for name in sorted(waiting, key=lambda name: -waiting[name]):
        text = f"No running worker handles {name}, {waiting[name]:,} waiting"
        remedies = (Remedy("tasks", "Waiting tasks", name), Remedy("workers", "Workers"))
        found.append(Finding("unhandled", Severity.WARNING, text, None, waiting[name], name, remedies))
    yield from _first_of(found, "types that no running worker handles", Remedy("workers", "Workers"))


def _full(seen: Situation) -> Iterator[Finding]:
    """All slots are taken, most of them by one type, while others wait."""
    alive = [worker for worker in seen.workers if worker.alive]
    slots = sum(worker.concurrency for worker in alive)
    running = sum(min(worker.running, worker.concurrency) for worker in alive)
    if not slots or running < slots:
        return
    by_name = {name: counts.get("running", 0) for name, counts in seen.stats.by_name.items()}
    busiest = max(by_name, key=lambda name: by_name[name], default=None)
    if busiest is None or by_name[busiest] < MOST_OF_THE_SLOTS * running:
        return
    behind = sum(_waiting(seen, name) for name in by_name if name != busiest)
    if behind:
        text = (
            f"All {_count(slots, 'slot')} are taken, {by_name[busiest]:,} by {busiest}; {behind:,} of other types wait"
        )
        remedies = (Remedy("limits", f"Limit {busiest}", busiest), Remedy("workers", "Workers"))
        yield Finding("slots_held", Severity.WARNING, text, None, behind, busiest, remedies)


def _parked(seen: Situation) -> Iterator[Finding]:
    found: list[Finding] = []
    for each in sorted(seen.parked, key=lambda parked: -parked.count):
        they = "task is parked: its" if each.count == 1 else "tasks are parked: their"
        text = f"{each.count:,} {each.name} {they} code does not fit what was recorded"
        remedies = (Remedy("task", "Oldest task", str(each.example)), Remedy("tasks", "Waiting tasks", each.name))
        found.append(Finding("parked", Severity.WARNING, text, each.since, each.count, each.name, remedies))
    yield from _first_of(found, "types with parked tasks", Remedy("tasks", "Waiting tasks"))


def _new_errors(seen: Situation) -> Iterator[Finding]:
    new = [each for each in seen.errors if seen.now - each.first_seen <= NEW and _status(seen, each) == "open"]
    for group in sorted(new, key=lambda each: -each.count):
        kind = (group.fingerprint or "").partition(" in ")[0] or "An error"
        release = seen.releases.get(group.id)
        text = f"{kind} in {group.name} is new{f' in release {release}' if release else ''}: {group.message}"
        remedies = (
            Remedy("redrive", "Run again …", group.id),
            Remedy("errors", "Error", group.id),
            Remedy("task", "Latest task", str(group.example)),
        )
        yield Finding("new_error", Severity.WARNING, text, group.first_seen, group.count, group.name, remedies)


def _returned_errors(seen: Situation) -> Iterator[Finding]:
    """Errors that have come back after they were resolved."""
    for group in [each for each in seen.errors if _status(seen, each) == "reopened"]:
        mark = seen.marks[group.id]
        kind = (group.fingerprint or "").partition(" in ")[0] or "An error"
        by = f" by {mark.set_by}" if mark.set_by else ""
        text = f"{kind} in {group.name} is back after it was resolved{by}: {group.message}"
        remedies = (Remedy("errors", "Error", group.id), Remedy("task", "Latest task", str(group.example)))
        yield Finding("error_again", Severity.WARNING, text, group.last_seen, group.count, group.name, remedies)


def _more_errors(seen: Situation) -> Iterator[Finding]:
    if seen.more_errors:
        many, count = len(seen.more_errors), sum(each.count for each in seen.more_errors)
        text = f"{_count(many, 'more error')} {'is' if many == 1 else 'are'} new or back"
        look = (Remedy("errors", "Errors"),)
        yield Finding("new_error", Severity.WARNING, text, None, count, None, look, alike=many)


def _status(seen: Situation, group: ErrorGroup) -> Status:
    return status_of(group.last_seen, seen.marks.get(group.id))


def _lost_workers(seen: Situation) -> Iterator[Finding]:
    lost = [each for each in seen.ended if each.ending == "lost" and seen.now - each.ended_at <= NEW]
    found: list[Finding] = []
    for worker in sorted(lost, key=lambda each: -each.tasks):
        held = f" with {_tasks(worker.tasks)}, which run again" if worker.tasks else ""
        text = f"Worker {worker.worker_id} on {worker.host} was lost{held}"
        found.append(_worker_finding("worker_lost", text, worker.ended_at, worker.tasks))
    yield from _first_of(found, "lost workers", Remedy("workers", "Workers"))


def _silent_workers(seen: Situation) -> Iterator[Finding]:
    """Workers that send no heartbeats and are not recorded as lost yet, which another worker does if there is one."""
    if _left_behind(seen):
        return
    found: list[Finding] = []
    for worker in sorted(_silent(seen), key=lambda each: -each.running):
        held = f"; it holds {_tasks(worker.running)}, which other workers will recover" if worker.running else ""
        text = f"Worker {worker.worker_id} on {worker.host} has stopped sending heartbeats{held}"
        found.append(_worker_finding("worker_silent", text, worker.heartbeat_at, worker.running))
    yield from _first_of(found, "workers that have stopped sending heartbeats", Remedy("workers", "Workers"))


def _worker_finding(code: str, text: str, since: datetime, tasks: int) -> Finding:
    """A finding about one worker: a warning if tasks are concerned."""
    severity = Severity.WARNING if tasks else Severity.INFO
    return Finding(code, severity, text, since, tasks, None, (Remedy("workers", "Workers"),))


def _stuck(seen: Situation) -> Iterator[Finding]:
    for worker in seen.workers:
        if worker.alive and worker.stuck_threads:
            threads = _count(worker.stuck_threads, "thread")
            text = f"Worker {worker.worker_id} has {threads} stuck in timed-out tasks"
            remedies = (Remedy("workers", "Workers"),)
            yield Finding("stuck_threads", Severity.WARNING, text, None, worker.stuck_threads, None, remedies)


def _missed_schedules(seen: Situation) -> Iterator[Finding]:
    for schedule in seen.schedules:
        if schedule.paused_at is not None:
            continue
        remedies = (Remedy("schedules", "Schedules", schedule.name),)
        if schedule.error is not None:
            text = f"Schedule {schedule.name} cannot run: {schedule.error}"
            yield Finding("schedule_broken", Severity.WARNING, text, None, 0, schedule.plan.task, remedies)
        elif schedule.next_run_at is not None and seen.now - schedule.next_run_at > LATE:
            text = f"Schedule {schedule.name} missed its run; no worker that runs schedules is alive"
            missed = schedule.next_run_at
            yield Finding("schedule_missed", Severity.WARNING, text, missed, 0, schedule.plan.task, remedies)


def _objectives_at_risk(seen: Situation) -> Iterator[Finding]:
    risky = sorted((each for each in seen.objective_statuses if each.at_risk), key=lambda each: each.budget or 0.0)
    found: list[Finding] = []
    for each in risky:
        objective, budget = each.objective, each.budget or 0.0
        name = objective.name or "All types together"
        missed = budget < 0
        left = "misses its objective" if missed else f"has {budget:g} % of its error budget left"
        text = f"{name} {left}: {objective}, and {_percent(each.within)} did in the last day"
        late = round(each.count * (100 - (each.within or 0.0)) / 100)
        remedies = (Remedy("latency", "Latency", objective.name), Remedy("tasks", "Waiting tasks", objective.name))
        severity = Severity.WARNING if missed else Severity.INFO
        found.append(Finding("objective_at_risk", severity, text, None, late, objective.name, remedies))
    yield from _first_of(found, "objectives that are missed or at risk", Remedy("latency", "Latency"))


def _open_questions(seen: Situation) -> Iterator[Finding]:
    if seen.questions:
        count = len(seen.questions)
        text = f"{_count(count, 'question')} of workflows {'waits' if count == 1 else 'wait'} for an answer"
        remedies = (Remedy("questions", "Answer"),)
        yield Finding("questions", Severity.INFO, text, seen.questions[0], count, None, remedies)


def _percent(value: float | None) -> str:
    """The percentage to a tenth, above 99 % to a thousandth."""
    return "none" if value is None else f"{round(value, 3 if value > 99 else 1):g} %"


def _tasks(count: int) -> str:
    return _count(count, "task")


def _count(count: int, one: str) -> str:
    return f"{count:,} {one if count == 1 else f'{one}s'}"
