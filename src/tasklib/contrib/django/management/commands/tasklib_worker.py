"""`manage.py tasklib_worker`: runs the project's tasks."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import threading
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.utils import autoreload

from tasklib.cli.options.worker import default_concurrency
from tasklib.contrib.django.backend import backend_of
from tasklib.contrib.django.framework import task_backends
from tasklib.contrib.django.worker import open_queue
from tasklib.core.config import redact_url
from tasklib.errors import SchemaError, SchemaMissing, TaskLibError, WorkerStuck
from tasklib.queue import TaskQueue
from tasklib.worker import Worker, WorkerSettings
from tasklib.worker.supervisor.channel import SupervisorChannel, channel_to_supervisor
from tasklib.worker.supervisor.supervisor import Supervisor, SupervisorSettings
from tasklib.worker.supervisor.worker_main import run_worker_process

MODULE = "tasklib.contrib.django.worker"
SHOWN = 5


class Command(BaseCommand):
    """Runs tasks until it is stopped, or with --batch those that are due now."""

    help = (
        "Run the project's background tasks. SIGTERM or Ctrl-C lets running tasks finish within the grace and releases "
        "the rest; a second one skips the grace."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options, named as those of `tasklib worker`."""
        parser.add_argument("--backend", default="default", help="alias in TASKS (default: default)")
        parser.add_argument("--queues", metavar="NAMES", help="only these queues, separated by commas (default: all)")
        parser.add_argument(
            "-c", "--concurrency", type=_count, metavar="N", help="tasks at once in each process (default: 4 per CPU)"
        )
        parser.add_argument(
            "--processes",
            type=_count_or_none,
            default=1,
            metavar="N",
            help="worker processes; a supervisor restarts them. 0: this process only (default: 1)",
        )
        parser.add_argument("--batch", action="store_true", help="run what is due now, then exit")
        parser.add_argument(
            "--max-tasks", type=_count, metavar="N", help="stop after this many attempts; what runs then is finished"
        )
        parser.add_argument(
            "--grace", type=float, default=30.0, metavar="SECONDS", help="for running tasks after SIGTERM (default: 30)"
        )
        parser.add_argument("--probe-port", type=_count, metavar="PORT", help="answer GET /livez and /readyz there")
        parser.add_argument("--reload", action="store_true", help="start anew when code changes; for development")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the command."""
        _log_to_stderr(options["verbosity"])
        queues = self._queues(options)
        channel = channel_to_supervisor()
        alone = options["batch"] or options["max_tasks"] or options["reload"] or not options["processes"]
        try:
            if channel is None and not alone:
                _open(options["backend"], queues).close()  # what is wrong is said here, once
                sys.exit(_supervise(options))
            if options["reload"]:
                autoreload.run_with_reloader(self._run, options, queues, None)
            else:
                self._run(options, queues, channel)
        except (ImproperlyConfigured, TaskLibError) as error:
            raise CommandError(str(error)) from error

    def _run(self, options: dict[str, Any], queues: list[str], channel: SupervisorChannel | None) -> None:
        queue = _open(options["backend"], queues)
        settings = WorkerSettings(
            # Not more at once than may begin at all.
            concurrency=min(options["concurrency"] or default_concurrency(), options["max_tasks"] or sys.maxsize),
            poll_interval_seconds=queue.config.poll_interval_seconds,
            grace_seconds=options["grace"],
            modules=(MODULE,),
            signals=threading.current_thread() is threading.main_thread(),
        )
        _close_connections()  # what Django's checks have opened: this thread needs none while it works
        try:
            if options["batch"]:
                done = asyncio.run(_run_batch(queue, settings, options["max_tasks"]))
                if options["verbosity"]:
                    self.stdout.write(f"{done} attempt{'' if done == 1 else 's'} made.")
            elif channel is not None:
                run_worker_process(queue, settings, channel, lambda worker: self._say(queue, settings, worker))
            else:
                asyncio.run(self._work(queue, settings, options["max_tasks"]))
        except WorkerStuck as error:
            raise CommandError(str(error)) from error
        finally:
            queue.close()
            _close_connections()

    async def _work(self, queue: TaskQueue, settings: WorkerSettings, max_tasks: int | None) -> None:
        worker = Worker(queue, settings)
        if max_tasks is not None:
            queue.on_startup(lambda: _stop_after(max_tasks, queue, worker))
        working = asyncio.ensure_future(worker.run())
        await asyncio.sleep(0)  # It has begun, and listens to signals.
        self._say(queue, settings, worker.worker_id)
        await working

    def _say(self, queue: TaskQueue, settings: WorkerSettings, worker_id: str) -> None:
        names = sorted(queue.registry.names())
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        where = redact_url(queue.config.database_url)
        runs = f"{', '.join(names[:SHOWN])}{more}" or "no tasks yet: put them into a module tasks.py of an app"
        self.stdout.write(f"Worker {worker_id} on {where} runs {runs}, {settings.concurrency} at once.")
        self.stdout.flush()

    @staticmethod
    def _queues(options: dict[str, Any]) -> list[str]:
        try:
            backend = backend_of(options["backend"])
        except Exception as error:
            known = ", ".join(task_backends.settings)
            raise CommandError(f"{error}; TASKS has {known}") from error
        queues = [name.strip() for name in (options["queues"] or "").split(",") if name.strip()]
        unknown = [name for name in queues if backend.queues and name not in backend.queues]
        if unknown:
            raise CommandError(
                f"there is no queue {unknown[0]!r}: TASKS[{backend.alias!r}]['QUEUES'] has "
                f"{', '.join(sorted(backend.queues))}"
            )
        return queues


def _open(backend: str, queues: list[str]) -> TaskQueue:
    """The queue of this worker, its tables checked."""
    queue = open_queue(backend, queues)
    try:
        queue.pauses()
    except SchemaError as error:
        if isinstance(error, SchemaMissing):
            raise CommandError("the database has no tables of tasklib: run `manage.py migrate` first") from error
        raise CommandError(str(error).replace("`tasklib migrate`", "`manage.py migrate`")) from error
    return queue


def _close_connections() -> None:
    """Close what this thread has opened, but nothing of a caller in whose transaction the command runs."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


def _supervise(options: dict[str, Any]) -> int:
    """Run this same command in processes of their own."""
    command = [sys.executable, *_this_program(), "tasklib_worker", "--backend", options["backend"]]
    for name in ("queues", "concurrency", "grace", "settings", "pythonpath", "verbosity"):
        if options.get(name) is not None:
            command += [f"--{name}", str(options[name])]
    settings = SupervisorSettings(
        command=tuple(command),
        processes=options["processes"],
        grace_seconds=options["grace"],
        probe_port=options["probe_port"],
    )
    _close_connections()
    return Supervisor(settings).run()


def _this_program() -> list[str]:
    """How this program is started again: `manage.py`, or `python -m django`."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None:
        return ["-m", main.__spec__.name.removesuffix(".__main__")]
    return [os.path.abspath(sys.argv[0])]


async def _run_batch(queue: TaskQueue, settings: WorkerSettings, limit: int | None) -> int:
    worker = Worker(queue, settings)
    try:
        return await worker.run_once(limit)
    finally:
        await queue.aclose()


def _stop_after(number: int, queue: TaskQueue, worker: Worker) -> None:
    """Stop the worker once so many attempts have begun; those that run are finished."""
    from tasklib.core.calls.context import TaskContext
    from tasklib.core.calls.middleware import Middleware

    lock, left = threading.Lock(), [number]
    loop = asyncio.get_running_loop()

    class Counting(Middleware):
        """Stops the worker with the last start; a coroutine starts on its event loop, a function in a thread."""

        def before(self, ctx: TaskContext) -> None:
            if self._is_last():
                loop.call_soon_threadsafe(worker.stop)

        async def abefore(self, ctx: TaskContext) -> None:
            if self._is_last():
                worker.stop()

        def _is_last(self) -> bool:
            with lock:
                left[0] -= 1
                return left[0] == 0

    queue.add_middleware(Counting())


def _log_to_stderr(verbosity: int) -> None:
    """Show what workers log, unless the project's LOGGING does."""
    log = logging.getLogger("tasklib")
    if not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        log.addHandler(handler)
    if log.level == logging.NOTSET:
        log.setLevel([logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG][verbosity])


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text}")
    return number


def _count_or_none(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"must be 0 or more, got {text}")
    return number
