"""The worker: puts its services together, and lives from registration to sign-off."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID, uuid4

from tasklib.core.lifecycle import Ending
from tasklib.core.own_tasks import keep_running, own_task
from tasklib.core.retention import parse_retention
from tasklib.definition import secrets_of
from tasklib.errors import DatabaseBusy, DatabaseFull, DatabaseUnavailable, TaskLibError, WorkerStuck
from tasklib.queue.import_guard import refuse_while_loading
from tasklib.storage.operations import workers
from tasklib.storage.operations.attempts import Retries
from tasklib.storage.operations.workers import Registration
from tasklib.worker.execution.attempt import UNWIND_SECONDS
from tasklib.worker.execution.runner import Workbench
from tasklib.worker.hooks import call_hooks
from tasklib.worker.intake.claimer import Claimer
from tasklib.worker.intake.wakeups import Wakeups
from tasklib.worker.program_end import StopAtEnd
from tasklib.worker.settings import WorkerSettings
from tasklib.worker.signals import StopSignals
from tasklib.worker.supervisor.proxied_heartbeat import ProxiedHeartbeat, SupervisorLink
from tasklib.worker.upkeep.heartbeat import Heartbeat
from tasklib.worker.upkeep.leases import LeaseRenewal
from tasklib.worker.upkeep.metrics import MetricsService, flush
from tasklib.worker.upkeep.recovery import Recovery
from tasklib.worker.upkeep.retention import RetentionService
from tasklib.worker.upkeep.schedules import Scheduler
from tasklib.worker.upkeep.self_fence import SelfFence
from tasklib.worker.upkeep.service import Service
from tasklib.worker.upkeep.worker_info import worker_info

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

BATCH = 100
LAST_WORDS_SECONDS = 5.0
"""How long a worker that stops tries to record how its tasks ended."""

T = TypeVar("T")

log = logging.getLogger("tasklib.worker")


class Worker:
    """One worker; `run` it once."""

    def __init__(self, queue: TaskQueue, settings: WorkerSettings, supervisor: SupervisorLink | None = None) -> None:
        self._supervisor = supervisor
        self.worker_id = queue.config.worker_id or f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"
        self._queue = queue
        self._database = queue.database
        self._settings = settings
        self._bench = Workbench(
            queue,
            settings,
            worker_id=self.worker_id,
            table=None if supervisor is None else supervisor.running,
            make_room=self._make_room,
            wake=self._wake,
            stop=self.stop,
        )
        self._hand, self._finisher, self.state = self._bench.hand, self._bench.finisher, self._bench.state
        self._claimer: Claimer | None = None
        self._notices = Wakeups(self._database, self._hear)
        self._scheduler: Scheduler | None = None
        self._registered_names: list[str] = []
        self._stopping = False
        self._hurry = asyncio.Event()

    async def run(self) -> None:
        """Work until `stop` is called, a signal arrives, or the surrounding task is cancelled; then drain.

        In another thread than the main one no signal arrives, but the end of the program does: it waits for the drain.

        Raises WorkerStuck, after draining, when too many threads never came back.
        """
        patience = self._settings.grace_seconds + 2 * UNWIND_SECONDS + 2 * LAST_WORDS_SECONDS
        async with (
            StopSignals(self.stop, enabled=self._settings.signals),
            StopAtEnd(self.stop, patience_seconds=patience),
        ):
            await self._undisturbed(self._work)
        if len(self._bench.runner.stuck) >= self._settings.max_stuck_threads:
            raise WorkerStuck(
                f"{len(self._bench.runner.stuck)} threads never came back from timed-out tasks; start anew"
            )

    async def run_once(self, limit: int | None) -> int:
        """Run what is due now, each task once, and return how many were run."""

        async def work() -> None:
            await self._as_instance(await self._register(), lambda claimer: self._batch(claimer, limit))

        await self._undisturbed(work)
        return self._bench.done

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping

    def stop(self) -> None:
        """Stop claiming and drain; called a second time, stop now."""
        if self._stopping:
            self._hurry.set()
        self._stopping = self._bench.stopping = True
        if self._claimer is not None:
            self._claimer.stop()

    async def _undisturbed(self, work: Callable[[], Awaitable[None]]) -> None:
        """Work where the tasks that run here can neither cancel the worker nor stop its event loop."""
        keep_running(asyncio.get_running_loop())
        ended_by = await own_task(self._until_exit(work))
        if ended_by is not None:
            raise ended_by

    async def _until_exit(self, work: Callable[[], Awaitable[None]]) -> BaseException | None:
        """What ended the program, if something did: raised in a task of its own, it would be raised twice."""
        try:
            await self._with_hooks(work)
        except (KeyboardInterrupt, SystemExit) as error:
            return error
        return None

    async def _with_hooks(self, work: Callable[[], Awaitable[None]]) -> None:
        refuse_while_loading("a worker is started")
        self._bench.check(self._names())
        await call_hooks(self._queue.startup_hooks, self.state)
        try:
            await work()
        finally:
            await self._bench.close()
            await call_hooks(reversed(self._queue.shutdown_hooks), self.state)

    async def _work(self) -> None:
        """Live as one instance after the other: one that is declared dead ends, and the worker goes on as a new one."""
        try:
            await self._patiently(self._notices.listen)
            while not self._stopping:
                heartbeat = await self._patiently(self._register)
                if heartbeat is not None:
                    await self._as_instance(heartbeat, Claimer.run)
        finally:
            self._notices.ignore()

    async def _register(self) -> Heartbeat:
        """Become a new instance, known to others from now on; its registration is its first heartbeat."""
        instance = uuid4()
        heartbeat = self._heartbeat(instance)
        await self._database.arun(
            lambda: workers.register_worker(self._registration(instance), self._queue.clock.now())
        )
        names = self._names()
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
        """Work as a registered instance, drain and sign off."""
        config, now = self._queue.config, self._queue.clock.now
        guard = SelfFence(heartbeat, self._hand, self._finisher, timeout_seconds=config.worker_timeout_seconds)
        recovery = self._recovery(heartbeat)
        claimer = self._claimer = self._make_claimer(heartbeat.instance, guard, recovery)
        lease = config.lock_timeout_seconds
        self._scheduler = Scheduler(
            self._database,
            self._queue.scheduled_task,
            plans=self._queue.declared_schedules,
            known_tasks=self._queue.registry.names(),
            now=now,
        )
        services: tuple[Service, ...] = (
            LeaseRenewal(self._database, self._hand, lease_seconds=lease, now=now),
            self._bench.watch,
            recovery,
            guard,
            *(self._chores(self._scheduler) if work is Claimer.run else ()),
        )
        if self._stopping:
            claimer.stop()
        heartbeat.start()
        for service in services:
            service.start()
        try:
            await self._quietly(recovery.first_sweep)
            await work(claimer)
        except asyncio.CancelledError:
            self._stopping = self._bench.stopping = True
            raise
        finally:
            ending = own_task(self._end_instance(heartbeat, claimer, services))
            await asyncio.shield(ending)

    async def _patiently(self, step: Callable[[], Awaitable[T]]) -> T | None:
        """What the step gives, however long the database is away; None if the worker shall stop meanwhile."""
        failures = 0
        while not self._stopping:
            try:
                return await step()
            except (DatabaseUnavailable, DatabaseBusy, DatabaseFull) as error:
                failures += 1
                if failures == 1:
                    log.warning("cannot start to work, trying until the database is back: %s", error)
                await asyncio.sleep(min(1.0, 0.05 * 2 ** min(failures, 8)) * random.uniform(0.5, 1))
        return None

    async def _batch(self, claimer: Claimer, limit: int | None) -> None:
        """Claim and run until nothing is due that has not run here already."""
        seen: set[str] = set()
        while limit is None or len(seen) < limit:
            claimed = await claimer.claim(BATCH if limit is None else min(BATCH, limit - len(seen)))
            fresh = [task for task in claimed.tasks if task.id not in seen]
            for again in (task for task in claimed.tasks if task.id in seen):
                self._finisher.add(again, Ending.release(again.id, again.version))
            if not fresh and not claimed.contended:
                return
            seen.update(task.id for task in fresh)
            self._hand.buffer.extend(fresh)
            while self._hand.buffer or self._hand.running:
                self._hand.start_waiting()
                endings = {execution.ending for execution in self._hand.running.values()}
                if self._bench.lanes.lane is not None:
                    endings.add(self._bench.lanes.lane)
                await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
            await self._finisher.flush()

    async def _end_instance(self, heartbeat: Heartbeat, claimer: Claimer, services: Iterable[Service]) -> None:
        """Drain and sign off.  Without the database's word on everything it held, the instance is not signed off:
        when its heartbeat is missed, others take back what it could not."""
        try:
            async with asyncio.timeout(None) as limit:
                await self._drain(claimer, limit)
            signed_off = True
        except (TimeoutError, TaskLibError) as error:
            reason = str(error) or f"it has not answered for {LAST_WORDS_SECONDS:g} s"
            log.error("stopping without the database: what this worker ran is taken back by others: %s", reason)  # noqa: TRY400
            signed_off = False
            if self._stopping:
                self._finisher.give_up()
        for service in services:
            await service.stop()
        await asyncio.to_thread(heartbeat.stop)
        if signed_off:
            await self._quietly(lambda: flush(self._database, self._bench.meter, self._queue.clock.now()))
            await self._quietly(lambda: self._database.arun(lambda: workers.forget_worker(heartbeat.instance)))
        log.info("worker %s stopped", self.worker_id)

    async def _drain(self, claimer: Claimer, limit: asyncio.Timeout) -> None:
        """Nothing stays behind: what is not ours is dropped, the rest finished within the grace or given back."""
        if claimer.unregistered:
            self._hand.drop([task.id for task in self._hand.held()])
        self._hand.give_back(self._finisher.add)
        await self._let_finish(self._settings.grace_seconds)
        for execution in list(self._hand.running.values()):
            execution.release()
        given_up = time.monotonic() + 2 * UNWIND_SECONDS
        while self._hand.running:
            # Not until each has ended: one that refuses to is abandoned, and leaves the hand all the same.
            endings = [execution.ending for execution in self._hand.running.values()]
            await asyncio.wait(endings, timeout=0.05, return_when=asyncio.FIRST_COMPLETED)
            if time.monotonic() > given_up:
                # Should never happen, and must not keep a worker from ending if it does.
                for execution in list(self._hand.running.values()):
                    log.error("task %s was not seen to end; it is given back", execution.task.id)
                    execution.tell(Ending.release(execution.task.id, execution.task.version))
        limit.reschedule(asyncio.get_running_loop().time() + LAST_WORDS_SECONDS)
        await self._finisher.flush()
        if not claimer.unregistered:
            await claimer.release_strays()

    async def _let_finish(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        hurry = own_task(self._hurry.wait())
        while self._hand.running and not hurry.done() and (left := deadline - time.monotonic()) > 0:
            endings = {execution.ending for execution in self._hand.running.values()}
            await asyncio.wait({*endings, hurry}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()

    def _hear(self, event: str) -> None:
        """Something happened in the database: there may be work, or another schedule."""
        if self._scheduler is not None and event in ("schedules", "changed"):
            self._scheduler.changed(surely=event == "schedules")
        if self._claimer is not None:
            self._claimer.hear(event)

    def _make_room(self) -> None:
        if self._claimer is not None:
            self._claimer.make_room()

    def _wake(self) -> None:
        if self._claimer is not None:
            self._claimer.wake()

    def _names(self) -> list[str]:
        return [name for name in self._queue.registry.names() if self._settings.wants(name)]

    def _caps(self) -> Mapping[str, int]:
        """How many more tasks of each limited name this worker may take now."""
        defined, limits = self._defined_limits(), self._settings.limits
        return limits.caps(defined, self._hand.count_by_name()) if defined or limits else {}

    def _defined_limits(self) -> dict[str, int]:
        """How many of each task this worker runs at once, where the code says so."""
        return {
            name: definition.options.max_concurrency
            for name, definition in self._queue.registry.items()
            if definition.options.max_concurrency is not None
        }

    def _defined_secrets(self) -> dict[str, list[str]]:
        """Where the arguments of each task hold secrets, for those who show tasks and do not have the code."""
        found = {name: secrets_of(self._queue.registry.get(name)) for name in self._names()}
        return {name: list(places) for name, places in found.items() if places}

    def _registration(self, instance: UUID) -> Registration:
        self._registered_names = self._names()
        return Registration(
            instance=instance,
            worker_id=self.worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            timeout_seconds=self._queue.config.worker_timeout_seconds,
            concurrency=self._settings.concurrency,
            names=tuple(self._registered_names),
            info=self._vitals(),
        )

    def _heartbeat(self, instance: UUID) -> Heartbeat:
        loop = asyncio.get_running_loop()

        def declared_dead() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._declared_dead)

        kind = Heartbeat if self._supervisor is None else functools.partial(ProxiedHeartbeat, self._supervisor)
        return kind(
            self._database,
            instance,
            interval_seconds=self._queue.config.heartbeat_interval_seconds,
            timeout_seconds=self._queue.config.worker_timeout_seconds,
            now=self._queue.clock.now,
            declared_dead=declared_dead,
            worker_info=self._vitals,
        )

    def _vitals(self) -> dict[str, Any]:
        told = worker_info(
            stuck_threads=len(self._bench.runner.stuck),
            retention=self._queue.config.retention,
            limits=self._settings.limits.told(self._defined_limits()),
            secrets=self._defined_secrets(),
        )
        # Handlers may be added while it runs, as tq(...) does.
        names = self._names()
        return told if names == self._registered_names else {**told, "names": names}

    def _declared_dead(self) -> None:
        if self._claimer is not None:
            self._claimer.unregistered = True
            self._hand.drop([task.id for task in self._hand.held()])
            self._claimer.wake()

    def _make_claimer(self, instance: UUID, guard: SelfFence, recovery: Recovery) -> Claimer:
        return Claimer(
            self._database,
            self._hand,
            self._finisher,
            self._bench.size,
            instance=instance,
            worker_id=self.worker_id,
            names=self._names,
            caps=self._caps,
            limits=self._settings.limits,
            lease_seconds=self._queue.config.lock_timeout_seconds,
            poll_seconds=self._settings.poll_interval_seconds,
            may_claim=lambda: guard.may_claim,
            notices=self._notices,
            fleet=lambda: recovery.fleet,
            retries=lambda: Retries(self._queue.registry.retries(), self._queue.config.max_retries),
            now=self._queue.clock.now,
        )

    def _chores(self, scheduler: Scheduler) -> list[Service]:
        """What a worker that stays does beside its tasks."""
        chores: list[Service] = [self._bookkeeper(), scheduler]
        if rules := parse_retention(self._queue.config.retention):
            chores.append(RetentionService(self._database, rules, now=self._queue.clock.now))
        return chores

    def _recovery(self, heartbeat: Heartbeat) -> Recovery:
        return Recovery(
            self._database, self._queue.config, may_judge=lambda: heartbeat.is_steady, now=self._queue.clock.now
        )

    def _bookkeeper(self) -> MetricsService:
        return MetricsService(
            self._database,
            self._bench.meter,
            interval_seconds=max(1.0, self._queue.config.heartbeat_interval_seconds),
            now=self._queue.clock.now,
        )

    async def _quietly(self, step: Callable[[], Awaitable[Any]]) -> None:
        try:
            await step()
        except TaskLibError as error:
            log.warning("%s", error)
