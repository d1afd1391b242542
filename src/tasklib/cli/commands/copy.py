"""Between databases and roles: copy, and grants."""

from __future__ import annotations

from typing import Annotated, Any

from tasklib.cli.command import Cli, Commands, file_of, missing_file
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.options.declare import argument, option
from tasklib.core.config import Config
from tasklib.core.redaction.urls import redact_url

DUTIES = ("producer", "worker", "viewer", "admin")
app = Commands("Set-up")


@app.add()
def copy(
    cli: Cli,
    source: Annotated[str, argument("FROM", "The database to copy from.")],
    target: Annotated[str, argument("TO", "The database to copy to; its tables are created.")],
    force: Annotated[bool, option(None, "Copy although workers are alive on the source.", "--force")] = False,
) -> None:
    """Move a queue to another database, with everything in it.

    That is waiting, delayed and finished tasks, what workflows have recorded and wait for, events, schedules,
    pauses, limits and budgets. The source is paused first and stays so, and nothing is removed from it. Tasks keep
    their ids and schedules their next runs. It can be run again, for what was submitted meanwhile or after a failure:
    each thing is copied once, and what the target has changed, finished or removed since stays as it is.

    Examples:
        tasklib copy sqlite:///tasks.db postgresql://localhost/app
        tasklib copy sqlite:///tasks.db 'postgresql://localhost/app?schema=jobs' --force
    """
    from tasklib.queue import TaskQueue
    from tasklib.service.administration import Administration

    with TaskQueue(source) as old, TaskQueue(target) as new:
        _refuse_to_copy(old.config, new.config)
        alive = [worker.worker_id for worker in old.workers() if worker.alive]
        if alive and not force:
            names = ", ".join(alive)
            raise CommandFailed(f"workers are alive on the source ({names}): stop them, or copy with --force")
        with cli.out.progress("Copying", old.count()) as progress:
            found = Administration(old).copy_to(new, by=cli.user, progress=progress)

    def say() -> None:
        known = f"; {found.seen - found.copied:,} had come before" if found.seen > found.copied else ""
        cli.out.line(f"Copied {found.copied:,} of {found.seen:,} tasks{known}.")
        if found.unreadable:
            cli.out.line(f"Not copied, because they cannot be read: {', '.join(found.unreadable)}", "yellow")
        kept = {"Schedules": found.schedules, "pauses": found.pauses, "limits": found.limits}
        kept |= {"objectives": found.objectives}
        left = f"; {found.left:,} had come before and stay as they are there" if found.left else ""
        cli.out.line(", ".join(f"{what}: {count}" for what, count in kept.items()) + f"{left}.")
        cli.out.line("The source is paused; start workers on the target.")

    cli.out.answer(found, say)


@app.add()
def grants(
    cli: Cli,
    duty: Annotated[str, argument("|".join(DUTIES), "What the role is for.", words=DUTIES)],
    role: Annotated[str, argument("ROLE", "A role that exists in PostgreSQL.")],
    apply: Annotated[bool, option(None, "Run them, all or none, instead of printing them.", "--apply")] = False,
) -> None:
    """Grant a PostgreSQL role the minimum it needs: prints the GRANTs, or applies them.

    A producer stores tasks and reads none of their arguments; a worker runs them and removes finished ones by the rules
    of retention; a viewer changes nothing; an admin does all that the service does, and cannot change the audit log.

    Examples:
        tasklib grants producer web --database-url postgresql://localhost/app
        tasklib grants worker jobs --apply
    """
    if cli.config.is_sqlite:
        raise CommandFailed("SQLite has no roles: every user who may write the file may do everything", Exit.USAGE)
    if duty not in DUTIES:
        raise CommandFailed(f"a role is for one of {', '.join(DUTIES)}; got {duty!r}", Exit.USAGE)
    statements = cli.service.administration.grant(duty, role, apply=apply)
    data: dict[str, Any] = {"duty": duty, "role": role, "applied": apply, "statements": statements}

    def say() -> None:
        for statement in statements:
            cli.out.line(statement)
        if apply:
            cli.out.line(f"-- applied: {role} is a {duty} now")

    cli.out.answer(data, say)


def _refuse_to_copy(source: Config, target: Config) -> None:
    """Refuse a source that is not there, which would be made and be empty, and a copy of a queue onto itself."""
    missing = missing_file(source)
    if missing:
        raise CommandFailed(f"there is no database {missing} to copy from; check the path", Exit.DATABASE)
    if (source.database_url, source.db_schema) == (target.database_url, target.db_schema) or _is_one_file(
        source, target
    ):
        raise CommandFailed(
            f"{redact_url(source.database_url)} cannot be copied onto itself; name another database", Exit.USAGE
        )


def _is_one_file(source: Config, target: Config) -> bool:
    here, there = file_of(source), file_of(target)
    return here is not None and there is not None and there.exists() and here.samefile(there)
