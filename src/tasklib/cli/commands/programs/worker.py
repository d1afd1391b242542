"""Running tasks: worker, workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from tasklib.cli.command import Cli, Commands
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.logs import log_as_the_program_does, log_to_stderr
from tasklib.cli.options.worker import WorkerOptions
from tasklib.cli.show.queue import show_workers
from tasklib.core.config import redact_url

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue
    from tasklib.worker import WorkerSettings
    from tasklib.worker.supervisor.channel import SupervisorChannel

SHOWN = 5

app = Commands("Work")


@app.add(creates=True)
def worker(cli: Cli, options: WorkerOptions) -> None:
    """Run tasks until stopped.

    SIGTERM or Ctrl-C lets running tasks finish within the grace and releases the rest; a second one skips the grace.
    The queue is the TaskQueue in the modules, or else the default one with the tasks they define.

    Examples:
        tasklib worker app.tasks
        tasklib worker app.tasks billing.tasks --concurrency 20 --only 'email.*' --grace 60
        tasklib worker app.tasks --processes 4 --probe-port 8081
        tasklib worker app:queue --database-url postgresql://localhost/app
    """
    from tasklib.worker.supervisor.channel import channel_to_supervisor

    channel = channel_to_supervisor()
    if options.processes > 0 and channel is None:
        log_to_stderr(options.log_level or "info")
        raise typer.Exit(_supervise(cli, options))
    _run_here(cli, options, channel)


@app.add()
def workers(cli: Cli) -> None:
    """Show the workers: what they run, and their last heartbeats.

    Examples:
        tasklib workers
    """
    found = cli.service.queue.workers()
    none = "No workers. Start one: tasklib worker app.tasks"
    cli.out.answer_list({"workers": found}, lambda: show_workers(cli.out, found, cli.now()), none)


def _supervise(cli: Cli, options: WorkerOptions) -> int:
    """Run this same command in processes of their own, from here, where none of the user's code is imported."""
    from tasklib.worker.supervisor.supervisor import Supervisor, SupervisorSettings

    command = [sys.executable, "-m", "tasklib", "worker", *options.words()]
    command += ["--database-url", cli.given_url] if cli.given_url else []
    command += ["--json"] if cli.out.as_json else []
    settings = SupervisorSettings(
        command=tuple(command),
        processes=options.processes,
        grace_seconds=options.grace,
        probe_host=options.probe_host,
        probe_port=options.probe_port,
    )
    return Supervisor(settings).run()


def _run_here(cli: Cli, options: WorkerOptions, channel: SupervisorChannel | None) -> None:
    """Be a worker, alone or as one of a supervisor's."""
    from tasklib.cli.discovery import find_queue
    from tasklib.core.time.event_loop import run
    from tasklib.worker.supervisor.worker_main import run_worker_process

    with log_as_the_program_does(options.log_level):
        queue = find_queue(options.modules, cli.given_url, cli.url)
    settings = options.settings(queue)
    names = _names(queue, settings, options.modules)
    is_first = channel is None or not channel.restarts

    def say_start(worker_id: str) -> None:
        if is_first:
            _say_start(cli, worker_id, queue, settings, names)

    try:
        if is_first:
            # The first use: a database that cannot be used is an error here, before anything is promised.
            _say_pauses(cli, queue)
        if channel is None:
            run(_work(queue, settings, say_start))
        else:
            run_worker_process(queue, settings, channel, say_start)
    finally:
        queue.close()


def _say_pauses(cli: Cli, queue: TaskQueue) -> None:
    for pause in queue.pauses():
        cli.out.note(f"{pause.name or 'the whole queue'} is paused; tasklib resume {pause.name or ''}".rstrip())


async def _work(queue: TaskQueue, settings: WorkerSettings, say_start: Callable[[str], None]) -> None:
    import asyncio

    from tasklib.worker import Worker
    from tasklib.worker.service_manager import ServiceManager, informed

    worker = Worker(queue, settings)
    working = asyncio.ensure_future(worker.run())
    await asyncio.sleep(0)  # It has begun and listens to signals, so that from the start line on it can be stopped.
    say_start(worker.worker_id)
    manager = ServiceManager.of(os.environ)
    async with informed(manager, queue.timing, is_ready=lambda: True, is_stopping=working.done):
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
