"""Dead letters: tasks that failed for good, grouped by what went wrong, and started again at a chosen rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasklib.core.codec import dumps
from tasklib.core.insights.error_marks import ErrorMark, Mark
from tasklib.core.queue_info import ErrorGroup, TaskFilter
from tasklib.core.task import TaskState
from tasklib.core.texts.error_text import summary
from tasklib.core.texts.fingerprint import group_id
from tasklib.storage.operations.actions import in_steps, without_taken_keys
from tasklib.storage.operations.workflows.retrying import reopen_workflows
from tasklib.storage.rows import NO_TIME, RowReader, required_moment, uuid
from tasklib.storage.statement import BEGIN, Operation, Row, Statement

HOURS = 24
"""Failures are counted for each of so many hours."""

MOST_MARKS = 5000

MOST_GROUPS = 1000
"""Groups that are searched for one by its id."""


def list_errors(name: str | None, limit: int) -> Operation[list[ErrorGroup]]:
    """What went wrong, the latest first."""
    rows = yield Statement("list_errors", {"name": name, "limit": limit})
    return [
        ErrorGroup(
            id=group_id(row["name"], row["fingerprint"]),
            name=row["name"],
            fingerprint=row["fingerprint"],
            count=row["count"],
            first_seen=RowReader(row).read("first_seen", required_moment, NO_TIME),
            last_seen=RowReader(row).read("last_seen", required_moment, NO_TIME),
            example=uuid(row["id"]),
            message=summary(row["error"] or ""),
        )
        for row in rows
    ]


def redrive(which: TaskFilter, rate: float | None) -> Operation[int]:
    """Restart every matching task that failed for good; they come due one after the other, `rate` in a second.

    Without a rate all at once.  One whose unique key is taken again is skipped.
    """
    restarted = 0

    def restart(rows: Sequence[Row]) -> Operation[int]:
        nonlocal restarted
        ids = yield from without_taken_keys(rows)
        delays = {str(task_id): (restarted + n) / rate if rate else 0.0 for n, task_id in enumerate(ids)}
        batch = dumps([{"id": task_id, "delay": delay} for task_id, delay in sorted(delays.items())])
        changed = yield Statement("redrive_tasks", {"batch": batch})
        yield from reopen_workflows(changed)
        yield Statement("wake_workers")
        restarted += len(changed)
        return len(changed)

    return (yield from in_steps(which, restart))


def dead_letters(name: str | None = None, fingerprint: str | None = None) -> TaskFilter:
    """The filter that means tasks which failed for good."""
    return TaskFilter(states=(str(TaskState.FAILED), str(TaskState.BURIED)), name=name, fingerprint=fingerprint)


def count_errors_by_hour() -> Operation[Mapping[str, list[int]]]:
    """How often each group of errors happened in each of the last 24 hours, the oldest first, by the group's id."""
    found: dict[str, list[int]] = {}
    for row in (yield Statement("count_errors_by_hour")):
        counts = found.setdefault(group_id(row["name"], row["fingerprint"]), [0] * HOURS)
        counts[HOURS - 1 - min(row["hour"], HOURS - 1)] += row["count"]
    return found


def mark_error(group: str, mark: Mark | None, by: str | None) -> Operation[bool]:
    """Record a decision about a group, or forget it; False if there was none to forget."""
    if mark is not None:
        yield Statement("mark_error", {"id": group, "mark": mark, "by": by})
        return True
    yield BEGIN
    return bool((yield Statement("unmark_error", {"id": group})))


def list_error_marks() -> Operation[dict[str, ErrorMark]]:
    """Decisions about groups of errors by the id of the group, the latest thousands."""
    return {
        row["group_id"]: ErrorMark(
            row["group_id"],
            "muted" if row["mark"] == "muted" else "resolved",
            required_moment(row["set_at"]),
            row["set_by"],
        )
        for row in (yield Statement("list_error_marks", {"limit": MOST_MARKS}))
    }
