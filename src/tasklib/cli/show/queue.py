"""A queue as text: its counts, types, workers, pauses, limits and schedules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal

from tasklib.cli.show import times
from tasklib.cli.show.output import Cell, Column, Output, shortened
from tasklib.cli.show.tasks import DETAIL, STYLES, WIDE, compact

if TYPE_CHECKING:
    from datetime import datetime

    from tasklib.core.limits import Budget, KeyLimit, Limit, Pause
    from tasklib.core.queue_info import QueueStats, WorkerInfo
    from tasklib.core.schedule import Schedule
    from tasklib.service.statistics import Overview, Scale, TypeInfo

NUMBERS: Final = (
    *("pending", "delayed", "waiting", "running", "retrying", "completed", "failed", "cancelled", "buried"),
)
URGENT: Final = ("pending", "running", "retrying", "failed")
"""The counts that a narrow terminal has room for."""


def show_overview(out: Output, overview: Overview) -> None:
    """The counts of a queue."""
    stats = overview.stats
    rows: list[list[str | Cell]] = [[Cell(state, STYLES[state]), f"{of_state(stats, state):,}"] for state in NUMBERS]
    out.table([Column("STATE"), Column("TASKS", right=True)], [*rows, [Cell("in all", "bold"), f"{stats.total:,}"]])
    out.line()
    show_pauses(out, overview.pauses)
    workers = overview.workers_alive
    out.line(f"Workers alive: {workers}" if workers else "No worker is alive. Start one: tasklib worker app.tasks")


def show_types(out: Output, types: Sequence[TypeInfo]) -> None:
    """A table of the types, and which of them no worker defines."""
    numbers = NUMBERS if out.width >= WIDE else URGENT
    columns = [Column("NAME", fluid=True), *(Column(n.upper(), right=True) for n in numbers)]
    rows = [
        [
            info.name,
            *(_count(of_state(info, state), state) for state in numbers),
            Cell(str(info.workers), "" if info.workers else "red"),
            "yes" if info.paused else "",
        ]
        for info in types
    ]
    out.table([*columns, Column("WORKERS", right=True), Column("PAUSED")], rows)
    orphans = [info.name for info in types if not info.workers and info.pending + info.retrying]
    if orphans:
        out.line()
        out.line(f"Waiting, but no live worker takes: {', '.join(orphans)}")


def show_scale(out: Output, scale: Scale) -> None:
    """What waits and runs of each type, and how many workers that takes."""
    columns = [Column("NAME", fluid=True)]
    numbers = ("DUE", "PAUSED", "RUNNING", "EACH", "TAKES", "WORKERS", "ALIVE")
    rows: list[list[str | Cell]] = [
        [
            each.name,
            f"{each.due:,}",
            f"{each.paused:,}" if each.paused else "",
            f"{each.running:,}",
            "?" if each.seconds_per_task is None else times.span(each.seconds_per_task),
            "?" if each.seconds is None else times.span(each.seconds),
            str(each.workers),
            Cell(str(each.workers_alive), "" if each.workers_alive or not each.due else "red"),
        ]
        for each in scale.types
    ]
    if rows:
        out.table([*columns, *(Column(number, right=True) for number in numbers)], rows)
        out.line()
    out.line(
        f"Workers needed: {scale.workers}, each with {scale.slots_per_worker} at once, to run {scale.due:,} due and "
        f"{scale.running:,} running tasks within {times.exact(scale.objective_seconds)}. Alive: {scale.workers_alive}."
    )


def of_state(counts: QueueStats | TypeInfo, state: str) -> int:
    """How many are in the state, each task counted once: `pending` without those shown apart, `failed` too."""
    part = {"pending": counts.delayed + counts.waiting, "failed": counts.retrying}.get(state, 0)
    count: int = getattr(counts, state)
    return count - part


def show_workers(out: Output, workers: Sequence[WorkerInfo], now: datetime) -> None:
    """A table of the workers, with ages by the database's clock."""
    columns = [Column("WORKER"), Column("STATE"), Column("RUNNING", right=True), Column("HEARD"), Column("STARTED")]
    rows: list[list[str | Cell]] = [
        [
            worker.worker_id,
            Cell("alive", "green") if worker.alive else Cell("silent", "red"),
            f"{worker.running}/{worker.concurrency}",
            times.ago(worker.heartbeat_at, now),
            times.ago(worker.started_at, now),
            f"{worker.host} {worker.pid}",
            shortened(", ".join(worker.names), DETAIL),
        ]
        for worker in workers
    ]
    out.table([*columns, Column("HOST, PID"), Column("TASKS", fluid=True)], rows)


def show_pauses(out: Output, pauses: Iterable[Pause]) -> None:
    """A line for everything that is paused."""
    for pause in pauses:
        what = f"Tasks named {pause.name} are paused" if pause.name else "The whole queue is paused"
        by = f" by {pause.by}" if pause.by else ""
        reason = f": {pause.reason}" if pause.reason else ""
        resume = f"tasklib resume {pause.name}" if pause.name else "tasklib resume"
        out.line(f"{what} since {times.clock(pause.since)}{by}{reason}. Go on with: {resume}", "yellow")


def show_limits(out: Output, limits: Iterable[Limit]) -> None:
    """A line for every limit."""
    for limit in limits:
        what = f"Tasks named {limit.name}" if limit.name else "All tasks together"
        if limit.rate:
            burst = f", {limit.burst:g} at once after a quiet time" if limit.burst else ""
            out.line(f"{what}: at most {limit.rate:g} started per second{burst} ({_origin(limit, 'rate')})")
        if limit.max_running:
            out.line(f"{what}: at most {limit.max_running} running at once ({_origin(limit, 'max_running')})")


def _origin(limit: Limit, field: Literal["rate", "max_running"]) -> str:
    """Where a limit comes from."""
    if limit.is_declared(field):
        return "declared in code"
    declared = None if limit.declared is None else limit.declared.get(field)
    return "set at run time" if declared is None else f"set at run time; the code declares {declared:g}"


def show_key_limits(out: Output, limits: Iterable[KeyLimit]) -> None:
    """A line for every limit of concurrency keys."""
    for limit in limits:
        what = f"Tasks named {limit.name}" if limit.name else "Tasks"
        which = f"key {limit.key}" if limit.key else "each other key"
        most = f"at most {limit.max_running}" if limit.max_running else "any number"
        out.line(f"{what} of {which}: {most} running at once")


def show_budgets(out: Output, budgets: Iterable[Budget]) -> None:
    """A line for every budget of workflows."""
    for each in budgets:
        rate = f"{each.rate * 60:,.6g} tokens per minute, at most {each.burst:,.6g}"
        out.line(f"Budget {each.name}: {rate}; {each.tokens:,.6g} left")


def show_schedules(out: Output, schedules: Sequence[Schedule], now: datetime) -> None:
    """A table of schedules."""
    rows: list[list[str | Cell]] = [
        [
            schedule.name,
            schedule.plan.task,
            rhythm(schedule),
            _next(schedule, now),
            _when(schedule.last_run_at, now, "never"),
        ]
        for schedule in schedules
    ]
    columns = [Column("NAME", fluid=True), Column("TASK", fluid=True), Column("RUNS"), Column("NEXT"), Column("LAST")]
    out.table(columns, rows)


def show_schedule(out: Output, schedule: Schedule, now: datetime) -> None:
    """One schedule, and its next runs."""
    plan = schedule.plan
    out.line(f"{plan.name}  {'paused' if schedule.paused_at else 'active'}", "bold")
    if schedule.error:
        out.line(f"  cannot run   {schedule.error}", "red")
    out.line(f"  task         {plan.task}")
    out.line(f"  runs         {rhythm(schedule)}")
    out.line(f"  missed runs  {plan.misfire}, overlap {plan.overlap}")
    if plan.kwargs:
        out.line(f"  arguments    {compact(plan.kwargs)}")
    if schedule.last_run_at is not None:
        out.line(f"  last run     {times.clock(schedule.last_run_at)}  task {schedule.last_task_id}")
    for number, moment in enumerate(schedule.next_runs()):
        label = "" if number else "next runs"
        out.line(f"  {label:<12} {times.clock(moment)}  ({times.ago(moment, now)})")


def _next(schedule: Schedule, now: datetime) -> str | Cell:
    if schedule.paused_at:
        return Cell("paused", "yellow")
    return Cell("cannot run", "red") if schedule.error else _when(schedule.next_run_at, now, "over")


def rhythm(schedule: Schedule) -> str:
    """When it runs, in words."""
    plan = schedule.plan
    return f"every {times.exact(plan.every)}" if plan.every is not None else f"{plan.cron}  {plan.tz}"


def _when(moment: datetime | None, now: datetime, otherwise: str) -> str:
    return otherwise if moment is None else times.ago(moment, now)


def _count(count: int, state: str) -> Cell:
    return Cell(f"{count:,}", STYLES[state]) if count else Cell("·", "dim")
