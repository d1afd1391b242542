"""Tasks as text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from tasklib.cli.show import times
from tasklib.cli.show.output import Cell, Column, Output, shortened
from tasklib.core.insights.explain import Explanation
from tasklib.core.lifecycle import phase_of
from tasklib.core.queue_info import ErrorGroup
from tasklib.core.task import Attempt, Task, TaskState
from tasklib.core.texts.error_text import summary
from tasklib.core.texts.short_id import shorten

STYLES: Final[Mapping[str, str]] = {
    "pending": "cyan",
    "delayed": "blue",
    "waiting": "blue",
    "running": "yellow",
    "completed": "green",
    "retrying": "magenta",
    "failed": "red",
    "cancelled": "dim",
    "buried": "bold red",
}
DETAIL: Final = 100
WIDE: Final = 110
"""Columns from which a list shows what each task is about."""


def show_tasks(out: Output, tasks: Sequence[Task], now: datetime) -> None:
    """A table of tasks."""
    wide = out.width >= WIDE
    columns = [Column("ID"), Column("NAME", fluid=True), Column("STATE"), Column("TRY", right=True), Column("WHEN")]
    rows: list[list[str | Cell]] = []
    short = Counter(shorten(task.id) for task in tasks) if out.is_terminal else Counter[str]()
    for task in tasks:
        state = state_to_show(task, now)
        # A terminal shows enough of the id for every command to find the task; programs get all of it.
        shown = shorten(task.id) if short[shorten(task.id)] == 1 else str(task.id)
        row: list[str | Cell] = [shown, task.name, Cell(state, STYLES[state]), tries(task), when(task, now)]
        rows.append([*row, Cell(about(task), "dim")] if wide else row)
    out.table([*columns, Column("ABOUT", fluid=True)] if wide else columns, rows)


def show_task(out: Output, task: Task, now: datetime) -> None:
    """Everything about one task."""
    state = state_to_show(task, now)
    out.line(f"{task.name}  {state}", f"bold {STYLES[state]}")
    for label, value in facts(task, now):
        out.line(f"  {label:<12} {value}")
    if task.unreadable is not None:
        out.line(f"  unreadable   {task.unreadable}", "red")
    _section(out, "Payload", task.payload)
    if task.tags:
        _section(out, "Tags", task.tags)
    if task.headers:
        _section(out, "Headers", task.headers)
    if task.history or task.state is TaskState.RUNNING:
        out.line()
        out.line("Attempts", "bold")
        out.table(_ATTEMPT_COLUMNS, [*map(_attempt_row, task.history), *_running_row(task, now)], indent=2)
    if task.log:
        out.line()
        out.line("Log", "bold")
        rows = [[str(line.attempt), f"+{times.span(line.elapsed)}", line.level, line.text] for line in task.log]
        out.table(_LOG_COLUMNS, rows, indent=2)
    if task.result is not None:
        _section(out, "Result", task.result.get("value"))
    if task.error is not None:
        out.line()
        out.line("Error", "bold")
        out.block(task.error)


def show_explanation(out: Output, explanation: Explanation, now: datetime) -> None:
    """Why a task is not running, the first reason first."""
    task = explanation.task
    state = state_to_show(task, now)
    out.line(f"{task.name}  {state}  {task.id}", f"bold {STYLES[state]}")
    for number, reason in enumerate(explanation.reasons, 1):
        out.line(f"  {number}. {reason.text}")
        if reason.remedy:
            out.line(f"     What to do: {reason.remedy}")


def show_errors(out: Output, groups: Sequence[ErrorGroup], now: datetime) -> None:
    """A table of groups of errors, the latest first."""
    rows = [
        [
            group.id,
            f"{group.count:,}",
            group.name,
            times.ago(group.first_seen, now),
            times.ago(group.last_seen, now),
            group.fingerprint or group.message or "unknown",
        ]
        for group in groups
    ]
    columns = [Column("GROUP"), Column("TASKS", right=True), Column("NAME"), Column("FIRST"), Column("LAST")]
    out.table([*columns, Column("ERROR", fluid=True)], rows)


def facts(task: Task, now: datetime) -> Iterable[tuple[str, str]]:
    """What is stored of a task beside its input and output, as label and value."""
    progress = f"{(task.progress or 0) * 100:.0f} % {task.progress_message or ''}"
    cancelling = task.cancel_requested_at if task.completed_at is None else None
    values = {
        "id": task.id,
        "attempts": f"{task.attempts} of {task.max_attempts}",
        "due": task.due_at,
        "progress": progress.strip() if task.progress is not None or task.progress_message else None,
        "created": task.created_at,
        "scheduled": task.scheduled_at if task.scheduled_at != task.created_at else None,
        "started": task.started_at,
        "ended": task.completed_at,
        "worker": task.worker_id,
        "lease ends": task.locked_until,
        "cancelling": None if cancelling is None else f"asked for {times.ago(cancelling, now)}",
        "priority": task.priority or None,
        "timeout": None if task.timeout_seconds is None else times.exact(task.timeout_seconds),
        "unique key": task.unique_key,
        "concurrency key": task.concurrency_key,
        "expires": task.expires_at,
        "lost workers": task.lost_count or None,
    }
    for label, value in values.items():
        if value is not None:
            yield label, _moment(value, now) if isinstance(value, datetime) else str(value)


def state_to_show(task: Task, now: datetime) -> str:
    """The state of the task, with `delayed` and `waiting` separate from pending and `retrying` from failed."""
    phase = str(phase_of(task))
    if task.waits_for is not None:
        return "waiting"
    return "delayed" if phase == "pending" and task.due_at is not None and task.due_at > now else phase


def tries(task: Task) -> str:
    """Attempts made, of those there may be."""
    return f"{task.attempts}/{task.max_attempts}"


def when(task: Task, now: datetime) -> str:
    """The time that matters in its state: when it is due, since when it runs, or when it ended."""
    if task.completed_at is not None:
        return times.ago(task.completed_at, now)
    if task.state is TaskState.RUNNING and task.started_at is not None:
        return f"for {times.span((now - task.started_at).total_seconds())}"
    if task.waits_for is not None and task.due_at is None:
        return "no due time"
    due = task.due_at or task.scheduled_at
    return f"due {times.ago(due, now)}"


def about(task: Task) -> str:
    """One line: the payload, or the error."""
    if task.unreadable is not None:
        return shortened(f"unreadable: {task.unreadable}", DETAIL)
    if task.error is not None:
        return shortened(summary(task.error), DETAIL)
    return shortened(compact(task.payload), DETAIL)


def _section(out: Output, title: str, value: Any) -> None:
    out.line()
    out.line(title, "bold")
    out.block(json.dumps(value, indent=2, ensure_ascii=False))


def _moment(moment: datetime, now: datetime) -> str:
    return f"{times.clock(moment)}  ({times.ago(moment, now)})"


def compact(value: Any) -> str:
    """An object as `key=value, …`, anything else as JSON."""
    if isinstance(value, Mapping):
        return ", ".join(
            f"{key}={v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)}" for key, v in value.items()
        )
    return json.dumps(value, ensure_ascii=False)


def _attempt_row(attempt: Attempt) -> list[str | Cell]:
    took = ""
    if attempt.started_at is not None and attempt.ended_at is not None:
        took = times.span((attempt.ended_at - attempt.started_at).total_seconds())
    style = STYLES.get(attempt.outcome, "red")
    error = shortened(attempt.error or "", DETAIL)
    started = times.clock(attempt.started_at) if attempt.started_at else ""
    return [str(attempt.number), started, took, Cell(attempt.outcome, style), attempt.worker_id or "", error]


def _running_row(task: Task, now: datetime) -> Iterable[list[str | Cell]]:
    if task.state is TaskState.RUNNING and task.started_at is not None:
        took = times.span((now - task.started_at).total_seconds())
        state = Cell("running", STYLES["running"])
        yield [str(task.attempts), times.clock(task.started_at), took, state, task.worker_id or "", ""]


_LOG_COLUMNS: Final = (Column("#", right=True), Column("AT", right=True), Column("LEVEL"), Column("TEXT", fluid=True))
_ATTEMPT_COLUMNS: Final = (
    Column("#", right=True),
    Column("STARTED"),
    Column("TOOK", right=True),
    Column("OUTCOME"),
    Column("WORKER", fluid=True),
    Column("ERROR", fluid=True),
)
