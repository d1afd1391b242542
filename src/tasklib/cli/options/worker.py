"""Options of `tasklib worker`: the modules of the tasks, and how to run them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tasklib.cli.options import values
from tasklib.cli.options.common import LEVELS
from tasklib.cli.options.declare import argument, option

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue
    from tasklib.worker import WorkerSettings

MAX_CONCURRENCY = 32
CLUSTER_CONCURRENCY = 1000
"""On a cluster, the room in it is the real limit."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What to run, and how."""

    modules: Annotated[
        list[str], argument("MODULE", "Where the tasks are defined; module:queue chooses one of several queues.")
    ]
    concurrency: Annotated[
        int | None,
        option(
            "N",
            "Tasks that run at once in each process.  [default: 4 per CPU, at most 32]",
            *("--concurrency", "-c"),
            min=1,
        ),
    ] = None
    processes: Annotated[
        int,
        option(
            "N",
            "Worker processes; a supervisor restarts them. 0: this process only, without a supervisor.",
            min=0,
            show_default=True,
        ),
    ] = 1
    only: Annotated[
        list[str] | None, option("PATTERN", "Only tasks whose name matches, as in 'email.*'; may be repeated.")
    ] = None
    grace: Annotated[
        float, option("SECONDS", "How long running tasks may continue after SIGTERM.", min=0, show_default=True)
    ] = 30.0
    poll_interval: Annotated[
        float | None, option("SECONDS", "Time between polls of an idle worker.  [default: 1]", min=0.001)
    ] = None
    prefetch: Annotated[
        int | None, option("N", "Tasks to claim ahead.  [default: as many as finish in 0.1 s]", min=0)
    ] = None
    memory_limit: Annotated[
        int | None,
        option(
            "SIZE",
            "Memory limit of a child process, for tasks that set none: 300 or 300M for 300 MiB, 2G.",
            parser=values.mebibytes,
        ),
    ] = None
    executor: Annotated[
        str | None, option("ENGINE", "Run the tasks' functions on a cluster: dask or ray.", words=("dask", "ray"))
    ] = None
    scheduler: Annotated[
        str | None,
        option("ADDRESS", "The cluster's address, such as tcp://host:8786.  [default: from the engine's own settings]"),
    ] = None
    probe_port: Annotated[
        int | None, option("PORT", "Answer GET /livez, /readyz and /metrics on this port.", min=1, max=65535)
    ] = None
    probe_host: Annotated[str, option("HOST", "Address of the probes.", show_default=True)] = "127.0.0.1"
    log_level: Annotated[
        str | None,
        option(
            "LEVEL",
            "debug (logs successes too), info, warning or error.  [default: as the modules set it, or info]",
            words=LEVELS,
        ),
    ] = None

    def settings(self, queue: TaskQueue) -> WorkerSettings:
        """The settings of a worker of this queue."""
        from tasklib.worker import WorkerSettings

        return WorkerSettings(
            concurrency=self.concurrency or (CLUSTER_CONCURRENCY if self.executor else default_concurrency()),
            poll_interval_seconds=self.poll_interval or queue.config.poll_interval_seconds,
            prefetch=self.prefetch,
            grace_seconds=self.grace,
            only=tuple(self.only or ()),
            memory_limit_mb=self.memory_limit,
            executor=self.executor,
            scheduler=self.scheduler,
            modules=tuple(module.partition(":")[0] for module in self.modules),
        )

    def words(self) -> Iterator[str]:
        """The options as the command line of one worker process."""
        yield from self.modules
        for pattern in self.only or ():
            yield from ("--only", pattern)
        for name, value in {
            "--concurrency": self.concurrency,
            "--grace": self.grace,
            "--poll-interval": self.poll_interval,
            "--prefetch": self.prefetch,
            "--memory-limit": self.memory_limit,
            "--executor": self.executor,
            "--scheduler": self.scheduler,
            "--log-level": self.log_level,
        }.items():
            if value is not None:
                yield from (name, str(value))


def default_concurrency() -> int:
    """How many tasks to run at once by default: several per CPU, because most tasks wait for something else."""
    return min(MAX_CONCURRENCY, 4 * (os.cpu_count() or 1))
