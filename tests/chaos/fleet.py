"""Worker services under attack: started with the command line as an operator would, watched, killed and replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self
from urllib.parse import parse_qsl, urlsplit
from uuid import UUID, uuid4

import psutil

from tasklib import TaskQueue
from tests.chaos.history import History
from tests.chaos.ledger import LEDGER
from tests.chaos.producer import Mixture, Producer, mixed
from tests.fixtures import python
from tests.fixtures.reading import whole_lines
from tests.fixtures.waiting import eventually

ROOT = Path(__file__).parents[2]
RUN = "CHAOS_RUN"
START_SECONDS = 180.0
"""How long a process may take to start on a busy machine."""

Kind = Literal["supervisor", "worker", "child"]


@dataclass(frozen=True)
class Service:
    """One `tasklib worker` with everything below it."""

    process: subprocess.Popen[bytes]
    log_path: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        """Everything it and its worker processes have said."""
        return self.log_path.read_text(errors="replace")

    def workers(self) -> list[int]:
        """The pids of its worker processes."""
        with suppress(psutil.NoSuchProcess):
            return [child.pid for child in psutil.Process(self.pid).children() if child.name() != python.NURSERY]
        return []

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, timeout: float) -> int:
        """Its exit code, which must come in time."""
        return self.process.wait(timeout)


class Fleet:
    """Every process of one test: found again by its environment or its log, even when its parent is gone."""

    def __init__(self, url: str, folder: Path, history: History, **settings: float | str) -> None:
        assert history.ledger is not None
        self.url = url
        self.ledger = history.ledger
        self.history = history
        self.services: list[Service] = []
        self._producers: list[Producer] = []
        self._gate = folder / "ledger.gate"
        self._folder = folder
        self._run = uuid4().hex
        self._environment = {
            **os.environ,
            RUN: self._run,
            LEDGER: str(self.ledger.path),
            "CHAOS_EFFECT": effect_sql(url),
            "DATABASE_URL": url,
            **{f"TASKLIB_{name.upper()}": str(value) for name, value in settings.items()},
        }
        for name in ("TASKLIB_DATABASE_URL", "COLUMNS"):
            self._environment.pop(name, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing outlives the test, whatever became of it."""
        for producer in self._producers:
            producer.stop()
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for service in self.services:
            service.process.wait(START_SECONDS)
        eventually(lambda: not self.processes(), START_SECONDS)

    def start(
        self, *options: str, processes: int = 1, wait: bool = True, within: tuple[str, ...] = (), url: str | None = None
    ) -> Service:
        """Start a service, `within` another command if need be; returns when all its worker processes work."""
        log_path = self._folder / f"service-{len(self.services)}.log"
        command = [sys.executable, "-m", "tasklib", "worker", "tests.chaos.program", "--processes", str(processes)]
        environment = self._environment | ({"DATABASE_URL": url} if url else {})
        with open(log_path, "wb") as log:
            process = python.popen(
                [*within, *command, *options],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        service = Service(process, log_path)
        self.services.append(service)
        self.history.logs.append(log_path)
        if wait:
            self.wait_working(service, processes)
        return service

    def produce(self, queue: TaskQueue, total: int, mixture: Mixture = mixed, *, backlog: int = 500) -> Producer:
        """Start to submit tasks, until there are so many or the test ends."""
        producer = Producer(queue, self.history, total, mixture, backlog=backlog)
        self._producers.append(producer)
        return producer

    def wait_working(self, service: Service, processes: int) -> None:
        """Return when so many of its worker processes, alive now, have said that they work."""

        def working() -> bool:
            assert service.process.poll() is None, service.log
            return (
                sum(f":{pid}:" in service.log and pid_works(service.log, pid) for pid in service.workers()) == processes
            )

        eventually(working, START_SECONDS)

    def processes(self, kind: Kind | None = None) -> list[psutil.Process]:
        """Those that are alive."""
        return [process for process in self._marked() if kind is None or self.kind_of(process) == kind]

    def kind_of(self, process: psutil.Process) -> Kind:
        """What a process of the fleet is; one that is gone by now was a child."""
        if any(service.pid == process.pid for service in self.services):
            return "supervisor"
        try:
            command = [process.name(), *process.cmdline()]
        except psutil.Error:
            return "child"
        return "worker" if command[0] == "tasklib" or command[2:5] == ["-m", "tasklib", "worker"] else "child"

    def open_gate(self) -> None:
        """Let every task that waits for it end."""
        self._gate.touch()

    def close_gate(self) -> None:
        self._gate.unlink(missing_ok=True)

    def late_writes(self) -> set[UUID]:
        """The tasks of which a late write was attempted and refused, as the logs say."""
        mark = "late write refused: task "
        lines = (line for service in self.services for line in whole_lines(service.log_path) if mark in line)
        return {UUID(line.partition(mark)[2].split()[0]) for line in lines}

    def stop(self, timeout: float = START_SECONDS) -> None:
        """End every service in order; nothing may be left of them."""
        for service in self.services:
            if service.process.poll() is None:
                service.signal(signal.SIGTERM)
        for service in self.services:
            service.wait(timeout)
        eventually(lambda: not self.processes(), timeout)

    def _marked(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and self._is_marked(process):
                    yield process

    def _is_marked(self, process: psutil.Process) -> bool:
        # One that began as a fork shows the environment of what it was forked from, but writes to the same log.
        if process.environ().get(RUN) == self._run:
            return True
        with suppress(OSError):
            return Path(os.readlink(f"/proc/{process.pid}/fd/2")).parent == self._folder
        return False


def effect_sql(url: str) -> str:
    """The statement by which tasks have an effect in the database; the worker's search path is not the test's."""
    if url.startswith("sqlite"):
        return "INSERT INTO chaos_effects (task_id) VALUES (?)"
    schema = dict(parse_qsl(urlsplit(url).query)).get("schema", "public")
    return f"INSERT INTO {schema}.chaos_effects (task_id) VALUES (%s)"


def pid_works(log: str, pid: int) -> bool:
    """Whether the log says that the worker process with this pid was registered."""
    return any(f":{pid}:" in line and " started, " in line for line in log.splitlines())
