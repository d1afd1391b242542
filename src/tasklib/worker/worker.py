"""The worker: builds its parts, registers, works, drains and signs off."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import UUID, uuid4

from tasklib.core.calls.import_guard import refuse_while_loading
from tasklib.core.calls.own_tasks import keep_running, own_task
from tasklib.core.config import Config
from tasklib.core.lifecycle import Ending
from tasklib.core.retry import OUTAGE_PAUSE, OUTAGES
from tasklib.core.time.timing import Timing
from tasklib.errors import TaskLibError, WorkerStuck
from tasklib.queue import TaskQueue
from tasklib.storage.database import Database
from tasklib.storage.operations import schedules, statistics, workers
from tasklib.storage.operations.limits import pauses
from tasklib.storage.operations.workers import Registration
from tasklib.storage.operations.workflows.events import deliver_new
from tasklib.storage.operations.workflows.groups import fold_groups
from tasklib.storage.operations.workflows.steps import wake_parked
from tasklib.worker.control import WorkerControl
from tasklib.worker.execution.attempt import UNWIND_SECONDS
from tasklib.worker.execution.runner import Runner
from tasklib.worker.execution.running_attempt import StopReason
from tasklib.worker.execution.running_table import RunningTable
from tasklib.worker.hooks import call_hooks
from tasklib.worker.intake.claimer import Claimer
from tasklib.worker.intake.selection import TaskSelection
from tasklib.worker.intake.wakeups import Wakeups
from tasklib.worker.program_end import StopAtEnd
from tasklib.worker.settings import WorkerSettings
from tasklib.worker.signals import stop_at_signals
from tasklib.worker.upkeep.events import EventDelivery
from tasklib.worker.upkeep.groups import GroupFold
from tasklib.worker.upkeep.heartbeat import Heartbeat, HeartbeatOwner
from tasklib.worker.upkeep.instance import Instance
from tasklib.worker.upkeep.metrics import MetricsService, flush
from tasklib.worker.upkeep.retention import retention_services
from tasklib.worker.upkeep.schedules import Scheduler
from tasklib.worker.workflows.records import code_hash

BATCH = 100
RECORD_SECONDS = 5.0
"""How long a worker that stops tries to record how its tasks ended."""

T = TypeVar("T")

log = logging.getLogger("tasklib.worker")


class Supervision(Protocol):
    """What a worker calls of its supervisor, if it runs under one."""

    running: RunningTable

    def heartbeat(
        self, database: Database, timing: Timing, config: Config, instance: UUID, owner: HeartbeatOwner
    ) -> Heartbeat:
        """The heartbeat of an instance, sent where tasks cannot delay it."""
        ...


class Worker:
    """One worker; `run` it once."""

    def __init__(self, queue: TaskQueue, settings: WorkerSettings, supervisor: Supervision | None = None) -> None:
        self.worker_id = queue.config.worker_id or f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"
        self._queue = queue
        self._database = queue.database
        self._timing = queue.timing
        self._settings = settings
        self._supervisor = supervisor
        self._control = WorkerControl(queue.timing)
        self._runner = Runner(
            queue,
            settings,
            worker_id=self.worker_id,
            control=self._control,
            running_table=None if supervisor is None else supervisor.running,
        )
        self._selection = TaskSelection(queue, settings, self._runner.held)
        self._wakeups = Wakeups(self._database, self)
        self._claimer: Claimer | None = None
        self._scheduler: Scheduler | None = None
        self._registered_names: list[str] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self.started = asyncio.Event()
        """Set when the start-up hooks have run and the database was asked once, whether or not it answered."""
        self.state = self._runner.settings.state

    async def run(self) -> None:
        """Work until `stop` is called, a signal arrives, or the surrounding task is cancelled; then drain.

        Signals arrive only in the main thread; in another thread the end of the program stops the worker, and waits for
        the drain.

        Raises WorkerStuck, after draining, when too many threads never came back.
        """
        patience = self._settings.grace_seconds + 2 * UNWIND_SECONDS + 2 * RECORD_SECONDS
        async with (
            stop_at_signals(self, enabled=self._settings.signals),
            StopAtEnd(self, patience_seconds=patience),
        ):
            await self._run_protected(self._work)
        if self._runner.has_too_much_stuck:
            raise WorkerStuck(f"{len(self._runner.stuck)} threads never came back from timed-out tasks; start anew")

    async def run_once(self, limit: int | None) -> int:
        """Run what is due now, each task once, and return how many were run."""

        async def work() -> None:
            await self._as_instance(await self._register(), lambda claimer: self._batch(claimer, limit))

        await self._run_protected(work)
        return self._runner.done

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._control.is_stopping

    def stop(self) -> None:
        """Stop claiming and drain; called a second time, stop now."""
        self._control.stop()

    def notified(self, event: str) -> None:
        """Handle a notification of the database: there may be work, or a changed schedule."""
        if self._scheduler is not None and event in ("schedules", "changed"):
            self._scheduler.changed(surely=event == "schedules")
        if event == "event":
            self._control.workflow_signals.events_emitted.set()
            return
        if self._claimer is not None:
            self._claimer.notified(event)

    def worker_info(self) -> dict[str, Any]:
        """What the worker reports of itself with each heartbeat; called in the heartbeat's thread."""
        info = {
            "memory_bytes": _resident_bytes(),
            "stuck_threads": len(self._runner.stuck),
            "retention": self._queue.config.retention,
            "release": self._queue.config.release,
            "stopping": self._control.is_stopping,
            **self._selection.worker_info(),
        }
        # Handlers may be added while it runs, as tq(...) does.
        names = self._selection.names()
        return info if names == self._registered_names else {**info, "names": names}

    def report(self) -> dict[str, Any]:
        """Its counts since it started, and its load, for its supervisor; called on the event loop."""
        return {
            "counted": self._runner.metrics.totals(),
            "slots": self._settings.concurrency,
            "slots_used": len(self._runner.held.running),
        }

    def declared_dead(self) -> None:
        """Note that other workers have taken over its tasks; called in the heartbeat's thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._abandon_instance)

    def _abandon_instance(self) -> None:
        if self._claimer is not None:
            self._claimer.declared_dead = True
            self._drop_everything()
            self._control.wake()

    async def _run_protected(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` so that the tasks here can neither cancel the worker nor stop its event loop."""
        self._loop = asyncio.get_running_loop()
        keep_running(self._loop)
        self._queue.worker_loops.append(self._loop)
        try:
            ended_by = await own_task(self._until_exit(work))
        finally:
            self._queue.worker_loops.remove(self._loop)
        if ended_by is not None:
            raise ended_by

    async def _until_exit(self, work: Callable[[], Awaitable[None]]) -> BaseException | None:
        """Run the work; returns what ended the program, such as KeyboardInterrupt, which asyncio would raise twice from
        a task."""
        try:
            await self._with_hooks(work)
        except (KeyboardInterrupt, SystemExit) as error:
            return error
        return None

    async def _with_hooks(self, work: Callable[[], Awaitable[None]]) -> None:
        refuse_while_loading("a worker is started")
        self._runner.check(self._selection.names())
        await call_hooks(self._queue.startup_hooks, self.state)
        try:
            await work()
        finally:
            await self._runner.close()
            await call_hooks(reversed(self._queue.shutdown_hooks), self.state)

    async def _work(self) -> None:
        """Work until stopped; an instance that is declared dead ends, and the worker registers as a new one."""
        try:
            await self._until_available(self._wakeups.listen)
            while not self._control.is_stopping:
                heartbeat = await self._until_available(self._register)
                if heartbeat is not None:
                    await self._as_instance(heartbeat, Claimer.run)
        finally:
            self._wakeups.ignore()

    async def _register(self) -> Heartbeat:
        """Register as a new instance, visible to other workers from now on; the registration is its first heartbeat."""
        make = Heartbeat if self._supervisor is None else self._supervisor.heartbeat
        heartbeat = make(self._database, self._timing, self._queue.config, uuid4(), self)
        names = self._registered_names = self._selection.names()
        registration = Registration(
            instance=heartbeat.instance,
            worker_id=self.worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            timeout_seconds=self._queue.config.worker_timeout_seconds,
            concurrency=self._settings.concurrency,
            names=tuple(names),
            info=self.worker_info(),
        )
        defined = self._queue.registry.items_by_any_name()
        declared = {name: each.options.declared_limits for name, each in defined}
        await self._database.arun(lambda: pauses.declare_limits(declared))
        for_rows = {name: each.options.for_rows for name, each in defined}
        await self._database.arun(lambda: schedules.declare_tasks(for_rows))
        code = {name: code_hash(each.function) for name, each in defined if name in names}
        await self._database.arun(lambda: wake_parked(code))
        try:
            await self._database.arun(lambda: workers.register_worker(registration))
        except asyncio.CancelledError:
            # It may be known by now, and nobody would take it for stopped.
            await asyncio.shield(own_task(self._sign_off(heartbeat.instance)))
            raise
        log.info("worker %s started, %d names known", self.worker_id, len(names))
        if not names:
            chosen = f", or of those it knows none matches only={self._settings.only!r}" if self._settings.only else ""
            log.warning(
                "worker %s knows no task, and so runs none%s: import the modules that define them before it starts",
                self.worker_id,
                chosen,
            )
        return heartbeat

    async def _as_instance(self, heartbeat: Heartbeat, work: Callable[[Claimer], Awaitable[None]]) -> None:
        """Work as a registered instance, then drain and sign off."""
        queue = self._queue
        instance = Instance(queue, self._runner, self._control, heartbeat)
        claimer = self._claimer = Claimer(instance, self._runner, self._selection, self._wakeups)
        if work is Claimer.run:
            self._scheduler = Scheduler(queue, instance.poll_batch)
            retention = retention_services(queue, instance.poll_batch)
            signals = self._control.workflow_signals
            upkeep = (MetricsService(queue, self._runner.metrics, instance.poll_batch), self._scheduler, *retention)
            instance.start(*upkeep, EventDelivery(queue, signals), GroupFold(queue, signals, self._runner))
        else:  # in `run_once`
            instance.start()
        try:
            await self._or_log(instance.recovery.first_sweep)
            if self._scheduler is None:  # Nothing runs beside a batch.
                await self._or_log(Scheduler(queue, instance.poll_batch, once=True).step)
            else:
                await self._or_log(self._log_skipped)
            await work(claimer)
        except asyncio.CancelledError:
            self._control.is_stopping = True
            raise
        finally:
            await asyncio.shield(own_task(self._end_instance(instance, claimer)))

    async def _until_available(self, step: Callable[[], Awaitable[T]]) -> T | None:
        """Repeat the step until the database answers, and return its result; None if the worker is stopped first."""
        failures = 0
        while not self._control.is_stopping:
            try:
                reached = await step()
                self.started.set()
                return reached
            except OUTAGES as error:
                self.started.set()
                if failures == 0:
                    log.warning("cannot start to work, trying until the database is back: %s", error)
                await self._timing.sleep(OUTAGE_PAUSE(failures))
                failures += 1
        return None

    async def _log_skipped(self) -> None:
        """Warn of tasks that wait although no live worker takes their names: every worker skips them."""
        waiting = await self._database.arun(statistics.find_oldest_waiting)
        known = set(self._queue.registry.names())
        if unknown := {each.name for each in waiting} - known:
            found = await self._database.arun(workers.list_workers)
            unknown -= {name for each in found for name in each.names if each.takes(name)}
        if unknown:
            shown = ", ".join(sorted(unknown)[:10]) + (f" and {len(unknown) - 10} more" if len(unknown) > 10 else "")
            log.warning("tasks are skipped that no live worker takes: %s; start one that does", shown)

    async def _batch(self, claimer: Claimer, limit: int | None) -> None:
        """Claim and run until nothing is due that has not run here already."""
        held, finisher = self._runner.held, self._runner.finisher
        seen: set[str] = set()
        self._control.workflow_signals.children_ended.set()
        while limit is None or len(seen) < limit:
            while await self._database.arun(
                deliver_new
            ):  # emitted by SQL, or by a program that died before it delivered them
                pass
            if self._control.workflow_signals.children_ended.is_set():
                self._control.workflow_signals.children_ended.clear()
                while await self._database.arun(fold_groups):
                    pass
            claimed = await claimer.claim(BATCH if limit is None else min(BATCH, limit - len(seen)))
            new = [task for task in claimed.tasks if task.id not in seen]
            for again in (task for task in claimed.tasks if task.id in seen):
                finisher.add(again, Ending.release(again.id, again.version))
            if not new and not claimed.contended:
                return
            seen.update(task.id for task in new)
            self._runner.hold(new)
            while held.waiting or held.running:
                self._runner.start_held()
                await held.one_ended()
            await finisher.flush()

    async def _end_instance(self, instance: Instance, claimer: Claimer) -> None:
        """Drain and sign off.  If the database did not confirm every release, the instance stays registered: other
        workers recover the rest when its heartbeat is overdue."""
        try:
            await self._drain(instance, claimer)
            signed_off = True
        except (TimeoutError, TaskLibError) as error:
            reason = str(error) or f"it has not answered for {RECORD_SECONDS:g} s"
            log.error("stopping without the database: other workers recover its tasks: %s", reason)  # noqa: TRY400
            signed_off = False
            if self._control.is_stopping:
                self._runner.finisher.give_up()
        await instance.stop()
        if signed_off:
            await self._or_log(lambda: flush(self._database, self._runner.metrics))
            await self._sign_off(instance.id)
        log.info("worker %s stopped", self.worker_id)

    async def _sign_off(self, instance: UUID) -> None:
        await self._or_log(lambda: self._database.arun(lambda: workers.forget_worker(instance)))

    async def _drain(self, instance: Instance, claimer: Claimer) -> None:
        """Leave nothing held: drop tasks that are no longer ours, let the others finish within the grace, release the
        rest."""
        held, finisher = self._runner.held, self._runner.finisher
        if claimer.declared_dead:
            self._drop_everything()
        held.release_waiting(finisher)
        # Reported now: until the next heartbeat `explain` would say that this worker still takes tasks.
        report = own_task(self._report_stopping(instance)) if held.running else None
        await self._let_finish(self._settings.grace_seconds)
        if report is not None:
            report.cancel()
        for attempt in list(held.running.values()):
            attempt.stop(StopReason.RELEASED)
        given_up = self._timing.monotonic() + 2 * UNWIND_SECONDS
        while held.running:
            # Until each has really ended; one that does not end is abandoned, and then it is no longer held.
            await held.one_ended(max(0.0, given_up - self._timing.monotonic()))
            if self._timing.monotonic() >= given_up:
                # Should never happen, and must not keep a worker from ending if it does.
                for attempt in list(held.running.values()):
                    log.error("task %s did not report its end; it is released", attempt.task.id)
                    attempt.end(Ending.release(attempt.task.id, attempt.task.version))
        async with self._timing.timeout(RECORD_SECONDS):
            await finisher.flush()
            if not claimer.declared_dead:
                await claimer.release_strays()

    async def _report_stopping(self, instance: Instance) -> None:
        await self._or_log(lambda: self._database.arun(lambda: workers.beat(instance.id, self.worker_info())))

    async def _let_finish(self, seconds: float) -> None:
        """Wait until nothing runs, for at most the grace, or until a second stop asks to end now."""
        held, deadline = self._runner.held, self._timing.monotonic() + seconds
        while held.running and not self._control.is_hurried and (left := deadline - self._timing.monotonic()) > 0:
            await held.one_ended(left)

    def _drop_everything(self) -> None:
        held = self._runner.held
        held.drop([task.version for task in held.tasks()])

    async def _or_log(self, step: Callable[[], Awaitable[Any]]) -> None:
        try:
            await step()
        except TaskLibError as error:
            log.warning("%s", error)


def _resident_bytes() -> int | None:
    """The resident memory of this process; None where the system does not report it."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None
