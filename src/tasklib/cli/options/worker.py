"""What `tasklib worker` is told: the modules of the tasks, and how to run them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.options import values
from tasklib.cli.options.common import one_of

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue
    from tasklib.worker import WorkerSettings

MAX_CONCURRENCY = 32


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
            help="Worker processes; a supervisor restarts them. 0: this process only, without a supervisor.",
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
        float, typer.Option(min=0, metavar="SECONDS", help="How long running tasks may continue after SIGTERM.")
    ] = 30.0
    poll_interval: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="SECONDS",
            help="Time between polls of an idle worker.  [default: 1]",
            show_default=False,
        ),
    ] = None
    prefetch: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Tasks to claim ahead.  [default: as many as finish in 0.1 s]",
            show_default=False,
        ),
    ] = None
    memory_limit: Annotated[
        int | None,
        typer.Option(
            parser=values.mebibytes,
            metavar="SIZE",
            help="Memory limit of a child process, for tasks that set none: 300 or 300M for 300 MiB, 2G.",
            show_default=False,
        ),
    ] = None
    probe_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, metavar="PORT", help="Answer GET /livez and /readyz there.", show_default=False),
    ] = None
    probe_host: Annotated[str, typer.Option(metavar="HOST", help="Address of the probes.")] = "127.0.0.1"
    log_level: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="debug (logs successes too), info, warning or error.  [default: as the modules set it, or info]",
            autocompletion=one_of("debug", "info", "warning", "error"),
            show_default=False,
        ),
    ] = None

    def settings(self, queue: TaskQueue) -> WorkerSettings:
        """As a worker of this queue takes them."""
        from tasklib.worker import WorkerSettings

        return WorkerSettings(
            concurrency=self.concurrency or default_concurrency(),
            poll_interval_seconds=self.poll_interval or queue.config.poll_interval_seconds,
            prefetch=self.prefetch,
            grace_seconds=self.grace,
            only=tuple(self.only or ()),
            memory_limit_mb=self.memory_limit,
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
            "--memory-limit": self.memory_limit,
            "--log-level": self.log_level,
        }.items():
            if value is not None:
                yield from (option, str(value))


def default_concurrency() -> int:
    """Tasks at once where nobody says: most of them wait for something else."""
    return min(MAX_CONCURRENCY, 4 * (os.cpu_count() or 1))
