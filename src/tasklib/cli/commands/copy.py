"""Between databases and roles: copy, and grants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasklib.cli.command import Cli, command
from tasklib.cli.common_options import one_of
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.person import person

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasklib.queue import TaskQueue

GROUP = "Set-up"
MOVED = "copied by tasklib copy"
"""Why the source is paused."""
DECIDED = (
    *("task", "cron", "every", "tz", "kwargs", "misfire", "overlap", "jitter"),
    *("starts_at", "ends_at", "options", "secrets"),
)
"""What somebody has decided about a schedule, beside its name."""

app = typer.Typer()


@command(
    app,
    "copy",
    group=GROUP,
    examples="""
    tasklib copy sqlite:///tasks.db postgresql://localhost/app
    tasklib copy sqlite:///tasks.db 'postgresql://localhost/app?schema=jobs' --force
    """,
)
def copy(
    cli: Cli,
    source: Annotated[str, typer.Argument(metavar="FROM", help="The database to copy from.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The database to copy to; its tables are made.")],
    force: Annotated[bool, typer.Option("--force", help="Copy although workers are alive on the source.")] = False,
) -> None:
    """Move a queue to another database, with everything in it.

    That is waiting, delayed and finished tasks, schedules, pauses and limits. The source is paused first and stays so,
    and nothing is removed from it. Tasks keep their ids, so that it can be run again, for what was submitted meanwhile
    or after a failure: what was copied before is left as it is.
    """
    from tasklib.queue import TaskQueue

    with TaskQueue(source) as old, TaskQueue(target) as new:
        alive = [worker.worker_id for worker in old.workers() if worker.alive]
        if alive and not force:
            names = ", ".join(alive)
            raise CommandFailed(f"workers are alive on the source ({names}): stop them, or copy by --force")
        if not old.is_paused():
            old.pause(by=person(), reason=MOVED)
        with cli.out.progress("Copying", old.count()) as progress:
            seen, copied, unreadable = _copy_tasks(old, new, progress)
        others = {
            "schedules": _copy_schedules(old, new),
            "pauses": _copy_pauses(old, new),
            "limits": _copy_limits(old, new),
        }

    def say() -> None:
        known = f"; {seen - copied:,} were there already" if seen > copied else ""
        cli.out.line(f"Copied {copied:,} of {seen:,} tasks{known}.")
        if unreadable:
            cli.out.line(f"Left behind, because they cannot be read: {', '.join(unreadable)}", "yellow")
        cli.out.line(f"Schedules: {others['schedules']}, pauses: {others['pauses']}, limits: {others['limits']}.")
        cli.out.line("The source is paused; start workers on the target.")

    cli.out.answer({"seen": seen, "copied": copied, "unreadable": unreadable, **others}, say)


def _copy_tasks(old: TaskQueue, new: TaskQueue, progress: Callable[[int], None]) -> tuple[int, int, list[str]]:
    from tasklib.storage.operations import copy

    seen = copied = after = 0
    unreadable: list[str] = []
    while True:
        found = old.database.run(lambda after=after: copy.export_tasks(after, None))  # type: ignore[misc]
        if found.last == after:
            return seen, copied, unreadable
        unreadable += found.unreadable
        copied += new.database.run(lambda rows=found.rows: copy.import_tasks(rows, None))  # type: ignore[misc]
        seen, after = seen + len(found.rows), found.last
        progress(seen)


def _copy_schedules(old: TaskQueue, new: TaskQueue) -> int:
    from tasklib.core.schedule import BrokenPlan

    found = old.schedules()
    for schedule in found:
        plan = schedule.plan
        if isinstance(plan, BrokenPlan):
            continue  # nobody could run it there either
        new.add_schedule(plan.name, **{name: getattr(plan, name) for name in DECIDED})
        if schedule.paused_at is not None:
            new.pause_schedule(plan.name, by=schedule.paused_by)
    return len(found)


def _copy_pauses(old: TaskQueue, new: TaskQueue) -> int:
    # Not the one that keeps the source still: the target is to work.
    found = [pause for pause in old.pauses() if pause.reason != MOVED]
    for pause in found:
        new.pause(pause.name, by=pause.by, reason=pause.reason)
    return len(found)


def _copy_limits(old: TaskQueue, new: TaskQueue) -> int:
    limits, key_limits = old.limits(), old.key_limits()
    for limit in limits:
        if limit.rate is not None:
            new.set_rate_limit(limit.rate, limit.name)
        if limit.max_running is not None:
            new.set_concurrency_limit(limit.max_running, limit.name)
    for key_limit in key_limits:
        new.set_key_limit(key_limit.max_running, key_limit.key, key_limit.name)
    return len(limits) + len(key_limits)


@command(
    app,
    "grants",
    group=GROUP,
    examples="""
    tasklib grants producer web --database-url postgresql://localhost/app
    tasklib grants worker jobs --apply
    """,
)
def grants(
    cli: Cli,
    duty: Annotated[
        str,
        typer.Argument(
            metavar="producer|worker|viewer|admin",
            help="What the role is for.",
            autocompletion=one_of("producer", "worker", "viewer", "admin"),
        ),
    ],
    role: Annotated[str, typer.Argument(metavar="ROLE", help="A role that exists in PostgreSQL.")],
    apply: Annotated[bool, typer.Option("--apply", help="Run them, all or none, instead of printing them.")] = False,
) -> None:
    """Give a PostgreSQL role what it needs and no more: prints the GRANTs, or applies them.

    A producer stores tasks and reads none of their arguments; a worker runs them and deletes none; a viewer changes
    nothing; an admin does all that the service does, and cannot change the audit log.
    """
    if cli.config.is_sqlite:
        raise CommandFailed("SQLite has no roles: whoever may write the file may do everything", Exit.USAGE)
    from tasklib.storage.postgres.database import PostgresDatabase
    from tasklib.storage.postgres.grants import Duty

    if duty not in set(Duty):
        raise CommandFailed(f"a role is for one of {', '.join(Duty)}; got {duty!r}", Exit.USAGE)
    database = cli.manage.queue.database
    assert isinstance(database, PostgresDatabase)
    database.migrate()
    statements = database.grant(Duty(duty), role, apply=apply)
    data: dict[str, Any] = {"duty": duty, "role": role, "applied": apply, "statements": statements}

    def say() -> None:
        for statement in statements:
            cli.out.line(statement)
        if apply:
            cli.out.line(f"-- applied: {role} is a {duty} now")

    cli.out.answer(data, say)
