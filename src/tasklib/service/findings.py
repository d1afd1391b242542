"""What is wrong now, for the dashboard, the command line and alerts; and what was changed lately."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from tasklib.core.insights.findings import MOST_OF_A_KIND, NEW, Finding, Situation, find
from tasklib.core.queue_info import EndedWorker, ErrorGroup, QueueStats, WorkerInfo
from tasklib.queue.sync_async import as_operation, operation
from tasklib.service.base import ServicePart
from tasklib.service.error_groups import ErrorGroups, ErrorMark, status_of
from tasklib.service.insights.objectives import ObjectiveStatus, read_objective_statuses
from tasklib.storage.operations import errors, schedules, statistics, tasks, workers
from tasklib.storage.operations.access.audit import AuditEntry, StoredEntry, list_audit
from tasklib.storage.operations.limits import pauses
from tasklib.storage.operations.worker_history import list_ended_workers
from tasklib.storage.operations.workflows.events import list_questions
from tasklib.storage.operations.workflows.steps import list_parked
from tasklib.storage.statement import Operation

__all__ = ["Change", "Finding", "Findings"]

MOST_GROUPS: Final = 50
MOST_QUESTIONS: Final = 1000
MOST_WAITING: Final = 10_000
"""So many workflows that wait without an end are looked at for parked ones."""
MOST_CHANGES: Final = 200
ORDINARY: Final = frozenset({"worker_started", "worker_stopped"})
ENTRIES: Final = 500
HOUR_SECONDS: Final = 3600.0
ACTION_WORDS: Final = {
    "pause": "paused",
    "resume": "resumed",
    "set_rate_limit": "set the rate limit of",
    "set_concurrency_limit": "set the concurrency limit of",
    "set_key_limit": "set the key limit of",
    "redrive": "ran an error group again",
    "clean_up": "cleaned up",
    "put_schedule": "changed the schedule",
    "remove_schedule": "deleted the schedule",
    "create_schedule": "made the schedule",
    "pause_schedule": "paused the schedule",
    "resume_schedule": "resumed the schedule",
    "set_budget": "set the budget",
    "remove_budget": "removed the budget",
    "set_objective": "set the objective of",
}
"""Which changes explain a change in a chart, in words."""
BULK_WORDS: Final = {"retry": "retried", "cancel": "cancelled", "prioritize": "reprioritized", "delete": "deleted"}


@dataclass(frozen=True, slots=True)
class Change:
    """Something that may explain what changed in a chart."""

    at: datetime
    kind: str
    """`release`, `worker_started`, `worker_stopped`, `worker_lost` or `action`."""
    text: str
    count: int = 1
    """How many alike, such as workers of one release that started together."""


class Findings(ServicePart):
    """What is wrong with one queue now."""

    @operation
    def now(
        self,
        stats: QueueStats | None = None,
        failures: Sequence[ErrorGroup] | None = None,
        objective_statuses: Sequence[ObjectiveStatus] | None = None,
    ) -> Operation[tuple[Finding, ...]]:
        """Everything that is wrong, the most urgent first; counts, errors and objectives may be given, if known."""
        stats = stats or (yield from statistics.count_tasks_by_state())
        clock = datetime.fromtimestamp((yield from statistics.read_time()), UTC)
        known = yield from workers.list_workers()
        ended = yield from list_ended_workers(seconds=HOUR_SECONDS)
        if failures is None:
            failures = yield from errors.list_errors(None, MOST_GROUPS)
        marks = yield from errors.list_error_marks()
        news = sorted((each for each in failures if _is_news(each, marks, clock)), key=lambda each: -each.count)
        groups = yield from as_operation(ErrorGroups(self.queue).shown)(news[:MOST_OF_A_KIND])
        releases: dict[str, str] = {}
        for group in groups:
            task = yield from tasks.get_task(group.example)
            last = task.history[-1] if task is not None and task.history else None
            release = None if last is None else _release_of(last.worker_id, known, ended)
            if release is not None:
                releases[group.id] = release
        return find(
            Situation(
                now=clock,
                stats=stats,
                pauses=(yield from pauses.list_pauses()),
                workers=known,
                ended=ended,
                errors=groups,
                more_errors=news[MOST_OF_A_KIND:],
                schedules=(yield from schedules.list_schedules()),
                objective_statuses=(yield from read_objective_statuses())
                if objective_statuses is None
                else objective_statuses,
                questions=[each["asked_at"] or clock for each in (yield from list_questions(MOST_QUESTIONS))],
                parked=(yield from list_parked(MOST_WAITING)),
                releases=releases,
                marks=marks,
            )
        )

    anow = now.as_async

    @operation
    def changes(self, *, seconds: float) -> Operation[tuple[Change, ...]]:
        """Releases, workers that started and ended, pauses, limits and bulk actions, the newest first.

        Where they are too many, workers that started and stopped in order are left out first.
        """
        clock = yield from statistics.read_time()
        since = datetime.fromtimestamp(clock, UTC) - timedelta(seconds=seconds)
        known = yield from workers.list_workers()
        ended = yield from list_ended_workers(seconds=7 * 86_400.0)
        entries = yield from list_audit(limit=ENTRIES)
        found = [*_of_workers(known, ended, since), *_of_people(entries, since)]
        newest = sorted(found, key=lambda each: each.at, reverse=True)
        kept = sorted(newest, key=lambda each: each.kind in ORDINARY)[:MOST_CHANGES]
        return tuple(sorted(kept, key=lambda each: each.at, reverse=True))

    achanges = changes.as_async


def _is_news(group: ErrorGroup, marks: Mapping[str, ErrorMark], clock: datetime) -> bool:
    """Whether it is new, or came again after it was resolved."""
    status = status_of(group.last_seen, marks.get(group.id))
    return status == "reopened" or (status == "open" and clock - group.first_seen <= NEW)


def _release_of(worker_id: str | None, known: Sequence[WorkerInfo], ended: Sequence[EndedWorker]) -> str | None:
    everybody: list[WorkerInfo | EndedWorker] = [*known, *ended]
    return next((each.release for each in everybody if each.worker_id == worker_id and each.release), None)


def _of_workers(known: Sequence[WorkerInfo], ended: Sequence[EndedWorker], since: datetime) -> Iterator[Change]:
    everybody: list[WorkerInfo | EndedWorker] = [*known, *ended]
    first: dict[str, datetime] = {}
    for worker in everybody:
        if worker.release is not None:
            first[worker.release] = min(worker.started_at, first.get(worker.release, worker.started_at))
    for release, at in first.items():
        if at >= since:
            yield Change(at, "release", f"release {release} started")
    for worker in everybody:
        if worker.started_at >= since:
            yield Change(worker.started_at, "worker_started", f"worker {worker.worker_id} started")
    for gone in ended:
        if gone.ended_at >= since:
            held = f" with {gone.tasks} {'task' if gone.tasks == 1 else 'tasks'}" if gone.tasks else ""
            yield Change(gone.ended_at, f"worker_{gone.ending}", f"worker {gone.worker_id} {gone.ending}{held}")


def _of_people(entries: Sequence[StoredEntry], since: datetime) -> Iterator[Change]:
    for stored in entries:
        entry = stored.entry
        if stored.at >= since and "refused" not in entry.detail and (words := _words(entry)):
            changed = entry.detail.get("changed", entry.detail.get("deleted"))
            more = f" ({changed:,} {'task' if changed == 1 else 'tasks'})" if isinstance(changed, int) else ""
            yield Change(stored.at, "action", f"{entry.actor} {words}{more}")


def _words(entry: AuditEntry) -> str | None:
    """What somebody did; None if it explains nothing in a chart."""
    detail = entry.detail
    chosen = detail.get("filter")
    name = detail.get("type") or (chosen.get("type") if isinstance(chosen, Mapping) else None)
    if entry.action == "act_on_matching":
        verb = BULK_WORDS.get(str(detail.get("action")), "changed")
        return f"{verb} {f'tasks of {name}' if name else 'tasks'} in bulk"
    if entry.action not in ACTION_WORDS:
        return None
    words = f"{ACTION_WORDS[entry.action]} {name or entry.target or detail.get('key') or 'everything'}"
    rate = detail.get("tasksPerSecond", detail.get("count", detail.get("maxRunning")))
    unit = "/s" if "tasksPerSecond" in detail else ""
    return words if rate is None else f"{words} to {f'{rate:g}{unit}' if rate else 'none'}"
