"""Running tasks: worker, workers."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.command import Cli, command
from tasklib.cli.exits import CommandFailed, Exit

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue
    from tasklib.worker import WorkerSettings

GROUP = "Work"
MAX_CONCURRENCY = 32
SHOWN = 5

app = typer.Typer()


@command(
    app,
    "worker",
    group=GROUP,
    creates=True,
    examples="""
    tasklib worker app.tasks
    tasklib worker app.tasks billing.tasks --concurrency 20 --only 'email.*' --grace 60
    tasklib worker app:queue --database-url postgresql://localhost/app
    """,
)
def worker(
    cli: Cli,
    modules: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE", help="Where the tasks are defined; module:queue chooses one of several queues."
        ),
    ],
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            "-c",
            min=1,
            help="Tasks that run at once.  [default: 4 per CPU, at most 32]",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Only tasks whose name matches, as in 'email.*'; may be repeated.",
            show_default=False,
        ),
    ] = None,
    grace: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long running tasks may go on after SIGTERM.")
    ] = 30.0,
    poll_interval: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="SECONDS",
            help="How long to wait at most before looking for work unasked.  [default: 1]",
            show_default=False,
        ),
    ] = None,
    prefetch: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Tasks to claim ahead.  [default: as many as are done in 0.1 s]",
            show_default=False,
        ),
    ] = None,
    log_level: Annotated[str, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = "info",
) -> None:
    """Run tasks until told to stop.

    SIGTERM or Ctrl-C lets running tasks finish within the grace and gives back the rest; a second one does so at once.
    The queue is the TaskQueue in the modules, or else the default one with the tasks they define.
    """
    import asyncio

    from tasklib.cli.discovery import find_queue
    from tasklib.cli.logs import log_to_stderr
    from tasklib.worker import WorkerSettings

    log_to_stderr(log_level)
    queue = find_queue(modules, cli.given_url, cli.url)
    settings = WorkerSettings(
        concurrency=concurrency or default_concurrency(),
        poll_interval_seconds=poll_interval or queue.config.poll_interval_seconds,
        prefetch=prefetch,
        grace_seconds=grace,
        only=tuple(only or ()),
    )
    names = _names(queue, settings, modules)
    try:
        # The first use: a database that cannot be used is an error here, before anything is promised.
        for pause in queue.pauses():
            cli.out.note(f"{pause.name or 'the whole queue'} is paused; tasklib resume {pause.name or ''}".rstrip())
        asyncio.run(_work(cli, queue, settings, names))
    finally:
        queue.close()


@command(app, "workers", group=GROUP, examples="tasklib workers")
def workers(cli: Cli) -> None:
    """Show the workers: what they run, and when they were last heard."""
    found = cli.manage.queue.workers()

    def say() -> None:
        from tasklib.cli.views import show_workers

        if found:
            show_workers(cli.out, found)
        else:
            cli.out.line("No worker is there. Start one: tasklib worker app.tasks")

    cli.out.answer({"workers": found}, say)


def default_concurrency() -> int:
    """Tasks at once where nobody says: most of them wait for something else."""
    return min(MAX_CONCURRENCY, 4 * (os.cpu_count() or 1))


async def _work(cli: Cli, queue: TaskQueue, settings: WorkerSettings, names: list[str]) -> None:
    import asyncio

    from tasklib.worker import Worker

    worker = Worker(queue, settings)
    working = asyncio.ensure_future(worker.run())
    await asyncio.sleep(0)  # It has begun and listens to signals, so that from the start line on it can be stopped.
    _say_start(cli, worker.worker_id, queue, settings, names)
    await working


def _names(queue: TaskQueue, settings: WorkerSettings, modules: list[str]) -> list[str]:
    known = queue.registry.names()
    if not known:
        raise CommandFailed(
            f"no task is defined in {', '.join(modules)}; decorate functions with @tasklib.task or @queue.task",
            Exit.USAGE,
        )
    wanted = [name for name in known if settings.wants(name)]
    if not wanted:
        raise CommandFailed(f"--only {' '.join(settings.only)} matches none of: {', '.join(sorted(known))}", Exit.USAGE)
    return sorted(wanted)


def _say_start(cli: Cli, worker_id: str, queue: TaskQueue, settings: WorkerSettings, names: list[str]) -> None:
    from tasklib.config import redact_url

    where = redact_url(queue.config.database_url)
    data = {"worker_id": worker_id, "database": where, "names": names, "concurrency": settings.concurrency}
    cli.out.answer(
        data,
        lambda: cli.out.line(
            f"Worker {worker_id} on {where} runs {', '.join(names[:SHOWN])}"
            f"{f' and {len(names) - SHOWN} more' if len(names) > SHOWN else ''}, {settings.concurrency} at once."
        ),
    )
    sys.stdout.flush()  # The line says that the worker is there; whoever started it may wait for it.
