"""Looking at the whole: doctor, and top."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from tasklib.cli.command import Cli, Commands
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.options.declare import option
from tasklib.cli.show.queue import NUMBERS
from tasklib.cli.show.top import live, show

if TYPE_CHECKING:
    from tasklib.core.insights.findings import Finding
    from tasklib.service.service import QueueService

app = Commands("Queue")


@app.add()
def doctor(
    cli: Cli,
    ignore: Annotated[
        list[str] | None, option("FINDING", "Leave out a finding that you know of; may be given again.", "--ignore")
    ] = None,
) -> None:
    """Find problems and say what to do about them; exit 1 if there are any.

    Looks at the schema, workers, waiting tasks, pauses, limits, schedules, indexes and triggers, at the settings and
    clocks of the server, and whether a pooler such as PgBouncer is in front of it. It changes nothing.

    Examples:
        tasklib doctor
        tasklib doctor --json
        tasklib doctor --ignore beside-alembic
    """
    from tasklib.doctor import Fault, examine

    for unknown in set(ignore or ()) - set(Fault):
        raise CommandFailed(f"there is no finding {unknown!r}; there are {', '.join(Fault)}", Exit.USAGE)
    found = [each for each in examine(cli.config) if each.code not in (ignore or ())]
    now = _beside(cli.service) if not found else []

    def say() -> None:
        for each in found:
            cli.out.line(f"{each.code}: {each.text}")
            cli.out.line(f"  remedy: {each.remedy}")
        if not found:
            cli.out.line("Nothing is wrong.")
        for seen in now:
            cli.out.line(f"  {seen.severity}: {seen.text}")

    cli.out.answer({"findings": found, "now": now}, say)
    if found:
        raise CommandFailed(f"{len(found)} finding{'s' if len(found) > 1 else ''}")


@app.add()
def top(
    cli: Cli,
    interval: Annotated[
        float, option("SECONDS", "Time between updates.", "--interval", min=0.2, show_default=True)
    ] = 1.0,
    once: Annotated[bool, option(None, "Show it once and exit.", "--once")] = False,
) -> None:
    """Watch the queue live: what is wrong, waiting tasks, throughput, workers.

    Also the slowest and the failing types. Ends with Ctrl-C. Without a terminal, or with --json, it prints once.

    Examples:
        tasklib top
        tasklib top --once
        tasklib top --json
    """
    seen = look(cli.service)
    if once or cli.out.as_json or not cli.out.is_terminal:
        cli.out.answer(seen, lambda: show(cli.out, seen))
    else:
        with suppress(KeyboardInterrupt):
            live(lambda: look(cli.service), interval)


def look(service: QueueService) -> dict[str, Any]:
    """What there is to see now."""
    overview = service.statistics.overview()
    series = service.statistics.series(seconds=300, step=60)
    types = service.statistics.work_by_type(seconds=3600)
    shown = ("worker_id", "host", "running", "concurrency", "alive")
    return {
        "stats": {name: getattr(overview.stats, name) for name in NUMBERS},
        "paused": [pause.name for pause in overview.pauses],
        "per_minute": [
            {"at": datetime.fromtimestamp(at, UTC), **(work.outcomes if work else {})} for at, work, _ in series.points
        ],
        "slowest": [_type(each) for each in sorted(types, key=lambda t: -(t.run.p95 or 0))[:5]],
        "failing": [_type(each) for each in sorted(types, key=lambda t: -_failures(t)) if _failures(each)][:5],
        "workers": [{name: getattr(worker, name) for name in shown} for worker in service.queue.workers()],
        "findings": [
            {"severity": each.severity, "text": each.text, "count": each.count, "since": each.since}
            for each in service.findings.now(overview.stats)
        ],
    }


EXAMINED = frozenset({"paused", "no_workers", "unhandled", "schedule_missed", "schedule_broken"})
"""What the doctor looks at itself, with thresholds of its own."""


def _beside(service: QueueService) -> list[Finding]:
    """What is wrong with the tasks, not with the queue: new errors, lost workers, slots that one type holds."""
    return [each for each in service.findings.now() if each.code not in EXAMINED]


def _failures(work: Any) -> int:
    return sum(work.outcomes.get(outcome, 0) for outcome in ("failed", "retried", "buried"))


def _type(work: Any) -> dict[str, Any]:
    return {
        "name": work.name,
        "completed": work.outcomes.get("completed", 0),
        "failures": _failures(work),
        "run_p50": work.run.p50,
        "run_p95": work.run.p95,
        "wait_p95": work.wait.p95,
    }
