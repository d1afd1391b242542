"""Running tasks: worker, workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.command import Cli, command
from tasklib.cli.exits import CommandFailed, Exit
from tasklib.cli.options import LogLevel

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue
    from tasklib.worker import WorkerSettings
    from tasklib.worker.link import Link

GROUP = "Work"
MAX_CONCURRENCY = 32
SHOWN = 5

app = typer.Typer()


@dataclass(frozen=True, slots=True)
class Work:
    """What to run, and how."""

    modules: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE", help="Where the tasks are defined; module:queue chooses one of several queues."
        ),
    ]
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            "-c",
            min=1,
            metavar="N",
            help="Tasks that run at once in each process.  [default: 4 per CPU, at most 32]",
            show_default=False,
        ),
    ] = None
    processes: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Worker processes under a supervisor that replaces them; 0: this one process, without a supervisor.",
        ),
    ] = 1
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Only tasks whose name matches, as in 'email.*'; may be repeated.",
            show_default=False,
        ),
    ] = None
    grace: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long running tasks may go on after SIGTERM.")
    ] = 30.0
    poll_interval: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="SECONDS",
            help="How long to wait at most before looking for work unasked.  [default: 1]",
            show_default=False,
        ),
    ] = None
    prefetch: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Tasks to claim ahead.  [default: as many as are done in 0.1 s]",
            show_default=False,
        ),
    ] = None
    probe_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, metavar="PORT", help="Answer GET /livez and /readyz there.", show_default=False),
    ] = None
    probe_host: Annotated[str, typer.Option(metavar="HOST", help="Address of the probes.")] = "127.0.0.1"
    log_level: LogLevel = "info"

    def settings(self, queue: TaskQueue) -> WorkerSettings:
        """As a worker of this queue takes them."""
        from tasklib.worker import WorkerSettings

        return WorkerSettings(
            concurrency=self.concurrency or default_concurrency(),
            poll_interval_seconds=self.poll_interval or queue.config.poll_interval_seconds,
            prefetch=self.prefetch,
            grace_seconds=self.grace,
            only=tuple(self.only or ()),
            modules=tuple(module.partition(":")[0] for module in self.modules),
        )

    def words(self) -> Iterator[str]:
        """As one of several worker processes is given them on its command line."""
        yield from self.modules
        for pattern in self.only or ():
            yield from ("--only", pattern)
        for option, value in {
            "--concurrency": self.concurrency,
            "--grace": self.grace,
            "--poll-interval": self.poll_interval,
            "--prefetch": self.prefetch,
            "--log-level": self.log_level,
        }.items():
            if value is not None:
                yield from (option, str(value))


@command(
    app,
    "worker",
    group=GROUP,
    creates=True,
    examples="""
    tasklib worker app.tasks
    tasklib worker app.tasks billing.tasks --concurrency 20 --only 'email.*' --grace 60
    tasklib worker app.tasks --processes 4 --probe-port 8081
    tasklib worker app:queue --database-url postgresql://localhost/app
    """,
)
def worker(cli: Cli, work: Work) -> None:
    """Run tasks until told to stop.

    SIGTERM or Ctrl-C lets running tasks finish within the grace and gives back the rest; a second one does so at once.
    The queue is the TaskQueue in the modules, or else the default one with the tasks they define.
    """
    from tasklib.cli.logs import log_to_stderr
    from tasklib.worker.link import link_to_supervisor

    log_to_stderr(work.log_level)
    link = link_to_supervisor()
    if work.processes > 0 and link is None:
        raise typer.Exit(_supervise(cli, work))
    _run_here(cli, work, link)


@command(app, "workers", group=GROUP, examples="tasklib workers")
def workers(cli: Cli) -> None:
    """Show the workers: what they run, and when they were last heard."""
    found = cli.manage.queue.workers()

    def say() -> None:
        from tasklib.cli.queue_views import show_workers

        if found:
            show_workers(cli.out, found)
        else:
            cli.out.line("No worker is there. Start one: tasklib worker app.tasks")

    cli.out.answer({"workers": found}, say)


def default_concurrency() -> int:
    """Tasks at once where nobody says: most of them wait for something else."""
    return min(MAX_CONCURRENCY, 4 * (os.cpu_count() or 1))


def _supervise(cli: Cli, work: Work) -> int:
    """Run this same command in processes of their own, from here, where none of the user's code is imported."""
    from tasklib.worker.supervisor import Supervisor, SupervisorSettings

    command = [sys.executable, "-m", "tasklib", "worker", *work.words()]
    command += ["--database-url", cli.given_url] if cli.given_url else []
    command += ["--json"] if cli.out.as_json else []
    settings = SupervisorSettings(
        command=tuple(command),
        processes=work.processes,
        grace_seconds=work.grace,
        probe_host=work.probe_host,
        probe_port=work.probe_port,
    )
    return Supervisor(settings).run()


def _run_here(cli: Cli, work: Work, link: Link | None) -> None:
    """Be a worker, alone or as one of a supervisor's."""
    import asyncio

    from tasklib.cli.discovery import find_queue
    from tasklib.worker.member import run_member

    queue = find_queue(work.modules, cli.given_url, cli.url)
    settings = work.settings(queue)
    names = _names(queue, settings, work.modules)
    is_first = link is None or not link.restarts

    def say_start(worker_id: str) -> None:
        if is_first:
            _say_start(cli, worker_id, queue, settings, names)

    try:
        if is_first:
            # The first use: a database that cannot be used is an error here, before anything is promised.
            _say_pauses(cli, queue)
        if link is None:
            asyncio.run(_work(queue, settings, say_start))
        else:
            run_member(queue, settings, link, say_start)
    finally:
        queue.close()


def _say_pauses(cli: Cli, queue: TaskQueue) -> None:
    for pause in queue.pauses():
        cli.out.note(f"{pause.name or 'the whole queue'} is paused; tasklib resume {pause.name or ''}".rstrip())


async def _work(queue: TaskQueue, settings: WorkerSettings, say_start: Callable[[str], None]) -> None:
    import asyncio

    from tasklib.worker import Worker

    worker = Worker(queue, settings)
    working = asyncio.ensure_future(worker.run())
    await asyncio.sleep(0)  # It has begun and listens to signals, so that from the start line on it can be stopped.
    say_start(worker.worker_id)
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
