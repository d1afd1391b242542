"""Looking at the whole: doctor, and top."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasklib.cli.command import Cli, command
from tasklib.cli.exit_codes import CommandFailed

if TYPE_CHECKING:
    from tasklib.service.service import QueueService

GROUP = "Queue"

app = typer.Typer()


@command(app, "doctor", group=GROUP, examples="tasklib doctor\ntasklib doctor --json")
def doctor(cli: Cli) -> None:
    """Find problems and say what to do about them; exit 1 if there are any.

    Looks at the schema, workers, waiting tasks, pauses, limits, schedules, indexes and triggers, at the settings and
    clocks of the server, and whether a pooler such as PgBouncer stands before it. It changes nothing.
    """
    from tasklib.doctor import examine

    found = examine(cli.config)

    def say() -> None:
        for each in found:
            cli.out.line(f"{each.code}: {each.text}")
            cli.out.line(f"  remedy: {each.remedy}")
        if not found:
            cli.out.line("Nothing is wrong.")

    cli.out.answer({"findings": found}, say)
    if found:
        raise CommandFailed(f"{len(found)} finding{'s' if len(found) > 1 else ''}")


@command(app, "top", group=GROUP, examples="tasklib top\ntasklib top --once\ntasklib top --json")
def top(
    cli: Cli,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.2, help="Time between updates.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show it once and exit.")] = False,
) -> None:
    """Watch the queue live: waiting tasks, throughput, workers.

    Also the slowest and the failing types. Ends with Ctrl-C. Without a terminal, or with --json, it prints once.
    """
    from tasklib.cli.show.top import live, show

    seen = look(cli.service)
    if once or cli.out.as_json or not cli.out.is_terminal:
        cli.out.answer(seen, lambda: show(cli.out, seen))
    else:
        with suppress(KeyboardInterrupt):
            live(lambda: look(cli.service), interval)


def look(manage: QueueService) -> dict[str, Any]:
    """What there is to see now."""
    overview = manage.statistics.overview()
    series = manage.statistics.series(seconds=300, step=60)
    recent = [(at, work.outcomes if work else {}) for at, work, _ in series.points]
    types = manage.statistics.work_by_type(seconds=3600)
    return {
        "stats": {name: getattr(overview.stats, name) for name in _STATES},
        "paused": [pause.name for pause in overview.pauses],
        "per_minute": [{"at": at, **outcomes} for at, outcomes in recent],
        "slowest": [_type(each) for each in sorted(types, key=lambda t: -(t.run.p95 or 0))[:5]],
        "failing": [_type(each) for each in sorted(types, key=lambda t: -_failures(t)) if _failures(each)][:5],
        "workers": [
            {
                "worker_id": w.worker_id,
                "host": w.host,
                "running": w.running,
                "concurrency": w.concurrency,
                "alive": w.alive,
            }
            for w in manage.queue.workers()
        ],
    }


_STATES = ("pending", "delayed", "running", "retrying", "completed", "failed", "cancelled", "buried")


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
