"""Running worker processes: each is replaced when it dies, its heartbeats are sent for it, and all stop together."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tasklib.core.config import Config
from tasklib.core.time.timing import SystemTiming, Timing
from tasklib.errors import ConfigurationError
from tasklib.storage.database import Database
from tasklib.worker.service_manager import VARIABLES, ServiceManager, informed
from tasklib.worker.signals import STOPS
from tasklib.worker.supervisor.exposition import add_up, expose
from tasklib.worker.supervisor.probe import serve_probe
from tasklib.worker.supervisor.worker_process import WorkerProcess

CHECK_SECONDS = 0.25
"""How often worker processes are checked."""
MARGIN_SECONDS = 0.5
"""How long after the grace a worker process may take to end by itself."""
CLEANUP_SECONDS = 0.5
"""How long releasing the tasks of a killed process may take."""
CLOSE_SECONDS = 0.2
EXIT_SECONDS = 5.0
"""How long a process whose work is done may take to exit; threads of user code may keep it from exiting."""
STEADY_SECONDS = 10.0
"""A process that lived this long is replaced at once; one that did not, after a pause that doubles each time."""

log = logging.getLogger("tasklib.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSettings:
    """What a supervisor runs, and how."""

    command: tuple[str, ...]
    """Runs one worker process, which must call `tasklib.worker.supervisor.worker_main.run_worker_process`."""
    processes: int = 1
    grace_seconds: float = 30.0
    """How long running tasks may go on after the supervisor was asked to stop."""
    probe_host: str = "127.0.0.1"
    probe_port: int | None = None
    """Where `/livez`, `/readyz` and `/metrics` answer over HTTP; nowhere if None."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def __post_init__(self) -> None:
        if self.processes < 1:
            raise ConfigurationError(f"processes must be a whole number, 1 or more, got {self.processes!r}")


class Supervisor:
    """Runs worker processes until it is stopped; imports no user code."""

    def __init__(self, settings: SupervisorSettings, timing: Timing | None = None) -> None:
        self.settings = settings
        self.timing = timing or SystemTiming()
        self.databases: dict[Config, Database] = {}
        self.anyone_started = asyncio.Event()
        """Set once one worker process has imported its tasks, which shows that the others can too."""
        self.stopping = asyncio.Event()
        self.deadline = float("inf")
        """When processes that have not ended by themselves are killed."""
        self._slots = [_ProcessSlot(self, number) for number in range(1, settings.processes + 1)]
        self._code = 0
        self._born = self.timing.monotonic()

    def run(self) -> int:
        """Run the worker processes until a signal ends them all; returns the exit code."""
        return asyncio.run(self._run())

    def stop(self) -> None:
        """Let every worker process drain and end; called a second time, end now."""
        now = self.stopping.is_set()
        grace = 0.0 if now else self.settings.grace_seconds
        if self._code == 0:
            log.info("stopping%s", " now" if now else f"; running tasks may take {grace:g} s")
        self.deadline = min(self.deadline, self.timing.monotonic() + grace + MARGIN_SECONDS)
        self.stopping.set()
        for process in self._running():
            process.stop(now=now)

    def give_up(self, code: int) -> None:
        """End with the exit code of the first worker process, which could not start and has logged why; no other
        could."""
        if code <= 0:
            how = f"was ended by {signal.Signals(-code).name}" if code else "ended without an error"
            log.error("the first worker process %s before it had loaded its tasks", how)
        self._code = code if code > 0 else 128 - code if code else 1
        self.stop()

    def status(self) -> dict[str, Any]:
        """The state of each worker process."""
        return {
            "ready": self._is_ready(),
            "stopping": self.stopping.is_set(),
            "uptime_seconds": round(self.timing.monotonic() - self._born, 3),
            "processes": [slot.status() for slot in self._slots],
        }

    def metrics(self) -> bytes:
        """The metrics of the worker processes, in Prometheus' text format."""
        counted = [each for slot in self._slots for each in slot.counted()]
        return expose(counted, [slot.state() for slot in self._slots])

    def _is_ready(self) -> bool:
        return not self.stopping.is_set() and all(slot.is_ready for slot in self._slots)

    async def _run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in STOPS:
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGCHLD, self._collect)
        settings = self.settings
        manager = ServiceManager.of(settings.environment)
        async with (
            informed(manager, self.timing, is_ready=self._is_ready, is_stopping=self.stopping.is_set),
            serve_probe(settings.probe_host, settings.probe_port, self, self.timing),
        ):
            await asyncio.gather(*(slot.run() for slot in self._slots))
        await self.in_thread(self._close_databases, CLOSE_SECONDS)
        return self._code

    async def in_thread(self, work: Callable[[], None], seconds: float) -> None:
        """Do blocking work in a thread that never keeps this process alive; returns when done, or after so long."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def run() -> None:
            try:
                work()
            finally:
                with suppress(RuntimeError):  # the loop is closed, and nothing waits for the result
                    loop.call_soon_threadsafe(done.set)

        threading.Thread(target=run, name="tasklib-supervisor", daemon=True).start()
        await self.timing.wait(done, seconds)

    def _close_databases(self) -> None:
        for database in self.databases.values():
            database.close()

    def _collect(self) -> None:
        for process in self._running():
            process.collect()

    def _running(self) -> Iterator[WorkerProcess]:
        return (slot.process for slot in self._slots if slot.process is not None)


class _ProcessSlot:
    """Runs one worker process after the other, until the supervisor stops."""

    def __init__(self, supervisor: Supervisor, number: int) -> None:
        self._supervisor = supervisor
        self._number = number
        # Only the supervisor talks to the service manager, not its worker processes.
        given = supervisor.settings.environment
        self._environment = {name: value for name, value in given.items() if name not in VARIABLES}
        self._restarts = 0
        self._short_lives = 0
        self._false_starts = 0
        self.process: WorkerProcess | None = None
        self._counted_before: list[Sequence[Any]] = []
        """The counts of processes that have ended."""

    @property
    def is_ready(self) -> bool:
        """Whether there is a worker process whose heartbeat reaches the database."""
        return self.process is not None and self.process.is_alive and self.process.heartbeat.is_ready

    def status(self) -> dict[str, Any]:
        """The state of its worker process."""
        pid = None if self.process is None else self.process.pid
        return {"pid": pid, "ready": self.is_ready, "restarts": self._restarts}

    def counted(self) -> Iterator[Sequence[Any]]:
        """The counts of its processes, past and present."""
        yield from self._counted_before
        if self.process is not None and self.process.is_alive:
            yield self.process.report.get("counted", ())

    def state(self) -> dict[str, Any]:
        """The gauges of its worker process."""
        known: dict[str, Any] = {"ready": self.is_ready, "restarts": self._restarts}
        if self.process is not None and self.process.is_alive:
            known |= self.process.heartbeat.worker_info() or {}
            known |= self.process.report
            known["heartbeat_age"] = self.process.heartbeat.age_seconds
        return known

    async def run(self) -> None:
        """Start a worker process, and another when it has ended."""
        supervisor = self._supervisor
        if self._number > 1:
            # If the first cannot start, its error is shown once.
            await _first(supervisor.anyone_started, supervisor.stopping)
        while not supervisor.stopping.is_set():
            settings = supervisor.settings
            process = self.process = WorkerProcess(
                settings.command,
                self._environment,
                supervisor.databases,
                supervisor.timing,
                restarts=self._restarts,
                started=supervisor.anyone_started,
            )
            await self._watch(process)
            await self._clean_up(process)
            if supervisor.stopping.is_set():
                return
            if not process.has_started and not supervisor.anyone_started.is_set():
                supervisor.give_up(process.ended.result())
                return
            self._restarts += 1
            await supervisor.timing.wait(supervisor.stopping, self._pause(process))

    async def _watch(self, process: WorkerProcess) -> None:
        """Wait until the process has ended; kill one that hangs or does not stop in time."""
        supervisor, timing = self._supervisor, self._supervisor.timing
        killed = False
        ending_since: float | None = None
        while process.is_alive:
            with suppress(TimeoutError):
                async with timing.timeout(min(CHECK_SECONDS, max(0, supervisor.deadline - timing.monotonic()))):
                    await asyncio.wait({process.ended})
            now = timing.monotonic()
            if process.is_ending and ending_since is None:
                ending_since = now
            if killed or not process.is_alive:
                continue
            if now >= supervisor.deadline or (ending_since is not None and now > ending_since + EXIT_SECONDS):
                process.kill()
                killed = True
            elif process.heartbeat.loop_silence > 1 and not process.is_ending:
                log.error(
                    "the event loop of worker process %d has not responded for longer than its lease; the process is "
                    "killed, and its tracebacks follow",
                    process.pid,
                )
                process.dump_and_kill()
                killed = True

    async def _clean_up(self, process: WorkerProcess) -> None:
        """Log how the process ended, keep its counts, and let other workers run its tasks."""
        sums = add_up([*self._counted_before, process.report.get("counted", ())])
        self._counted_before = [[(*key, *each.values()) for key, each in sums.items()]]
        stopping = self._supervisor.stopping.is_set()
        code = process.ended.result()
        expected = stopping or not self._supervisor.anyone_started.is_set()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        log.log(logging.DEBUG if expected else logging.ERROR, "worker process %d %s", process.pid, how)
        await self._supervisor.in_thread(lambda: process.release_tasks(stopping=stopping), CLEANUP_SECONDS)

    def _pause(self, process: WorkerProcess) -> float:
        """Seconds until the next process starts: 0 at first, then longer each time one dies early."""
        if self._supervisor.timing.monotonic() - process.born > STEADY_SECONDS:
            self._short_lives = self._false_starts = 0
            return 0.0
        # A process that never registered is broken; one that did was likely killed by a task.
        if process.has_worked:
            self._short_lives, self._false_starts = self._short_lives + 1, 0
            return _pause(self._short_lives, base=0.02, cap=1.0)
        self._false_starts += 1
        pause = _pause(self._false_starts, base=0.5, cap=30.0)
        if pause > 1:
            log.error("worker processes do not start; trying again in %.0f s", pause)
        return pause


def _pause(times: int, *, base: float, cap: float) -> float:
    return min(cap, base * 2.0 ** min(times - 1, 20)) * random.uniform(0.5, 1)


async def _first(*events: asyncio.Event) -> None:
    """Return when one of the events is set."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for each in waiting:
        each.cancel()
