"""The worker: puts its services together, and lives from registration to sign-off."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID, uuid4

from tasklib.context import WorkerState
from tasklib.definition import Definition
from tasklib.errors import DatabaseBusy, DatabaseFull, DatabaseUnavailable, TaskLibError, WorkerStuck
from tasklib.lifecycle import Ending, Event
from tasklib.redaction import Redactor
from tasklib.retention import parse_retention
from tasklib.storage.operations import workers
from tasklib.storage.operations.attempts import Completion, summary
from tasklib.storage.operations.workers import Registration
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.apart import ApartExecution
from tasklib.worker.attendant import LeaseKeeper, Watch
from tasklib.worker.calling import Caller
from tasklib.worker.claim_size import ClaimSize
from tasklib.worker.claimer import Claimer
from tasklib.worker.execution import Ended, Execution, Runner
from tasklib.worker.finisher import Ends, Finisher, Lines
from tasklib.worker.guard import Guard
from tasklib.worker.hand import Hand
from tasklib.worker.heartbeat import Heartbeat
from tasklib.worker.hooks import call_hooks
from tasklib.worker.importing import refuse_while_loading
from tasklib.worker.janitor import Janitor
from tasklib.worker.kept import KeptHeartbeat, SupervisorLink
from tasklib.worker.lanes import Lanes, SteppedExecution
from tasklib.worker.meter import Bookkeeper, Meter, flush
from tasklib.worker.periodic import Service
from tasklib.worker.places import Places
from tasklib.worker.processes import TaskProcesses
from tasklib.worker.reaper import Reaper
from tasklib.worker.scheduler import Scheduler
from tasklib.worker.settings import WorkerSettings
from tasklib.worker.signals import StopSignals
from tasklib.worker.vitals import vitals

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
        config = queue.config
        self._supervisor = supervisor
        self._table = None if supervisor is None else supervisor.running
        self.worker_id = config.worker_id or f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"
        self._queue = queue
        self._database = queue.database
        self._settings = settings
        self._size = ClaimSize(settings.concurrency, settings.prefetch, settings.batch_size)
        self._hand = Hand(
            settings.concurrency,
            self._start,
            stepped=self._stepped,
            go=lambda: self._lanes.go(),
            runs_apart=self._runs_apart,
            may_run_ahead=self._may_run_ahead,
        )
        self._finisher = Finisher(self._database, queue.clock.now, self._recorded)
        self._meter = Meter()
        self._redactor = Redactor(config.redact_keys)
        self.state = WorkerState.hiding(self._redactor)
        self._watch = Watch(self._database, self._hand, self._finisher.add, now=queue.clock.now)
        caller = Caller(
            lambda: self._database,
            hooks=queue.middleware,
            max_result_bytes=config.max_result_bytes,
            now=queue.clock.now,
        )
        self._processes = TaskProcesses(queue, settings, self.worker_id)
        self._places = Places(caller)
        self._runner = Runner(
            worker_id=self.worker_id,
            state=self.state,
            places=self._places,
            hooks=queue.middleware,
            error_hooks=queue.error_hooks,
            retry_policy=config.backoff,
            max_result_bytes=config.max_result_bytes,
            report=self._watch.note_progress,
            record=self._watch.note_line,
            ended=self._ended,
        )
        self._lanes = Lanes(
            self._runner,
            take=self._hand.take_stepped,
            waits=self._waits,
            ended=self._completed,
            left=self._use_free_slots,
            table=self._table,
        )
        self._claimer: Claimer | None = None
        self._scheduler: Scheduler | None = None
        self._stopping = False
        self._hurry = asyncio.Event()
        self._done = 0

    async def run(self) -> None:
        """Work until `stop` is called, a signal arrives, or the surrounding task is cancelled; then drain.

        Raises WorkerStuck, after draining, when too many threads never came back.
        """
        async with StopSignals(self.stop, enabled=self._settings.signals):
            await self._with_hooks(self._work)
        if len(self._runner.stuck) >= self._settings.max_stuck_threads:
            raise WorkerStuck(f"{len(self._runner.stuck)} threads never came back from timed-out tasks; start anew")

    async def run_once(self, limit: int | None) -> int:
        """Run what is due now, each task once, and return how many were run."""

        async def work() -> None:
            await self._as_instance(await self._register(), lambda claimer: self._batch(claimer, limit))

        await self._with_hooks(work)
        return self._done

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping

    def stop(self) -> None:
        """Stop claiming and drain; called a second time, stop now."""
        if self._stopping:
            self._hurry.set()
        self._stopping = True
        if self._claimer is not None:
            self._claimer.stop()

    async def _with_hooks(self, work: Callable[[], Awaitable[None]]) -> None:
        refuse_while_loading()
        for name in self._names():
            self._processes.check(self._queue.registry.find(name))
        await call_hooks(self._queue.startup_hooks, self.state)
        try:
            await work()
        finally:
            self._places.close()
            await self._processes.close()
            await call_hooks(reversed(self._queue.shutdown_hooks), self.state)

    async def _work(self) -> None:
        """Live as one instance after the other: one that is declared dead ends, and the worker goes on as a new one."""
        loop = asyncio.get_running_loop()

        def wake(event: str) -> None:
            if not event.startswith("done") and not loop.is_closed():
                loop.call_soon_threadsafe(self._hear, event)

        unsubscribe = await self._patiently(lambda: asyncio.to_thread(self._database.subscribe, wake))
        try:
            while not self._stopping:
                heartbeat = await self._patiently(self._register)
                if heartbeat is not None:
                    await self._as_instance(heartbeat, Claimer.run)
        finally:
            if unsubscribe is not None:
                unsubscribe()

    async def _register(self) -> Heartbeat:
        """Become a new instance, known to others from now on; its registration is its first heartbeat."""
        instance = uuid4()
        heartbeat = self._heartbeat(instance)
        await self._database.arun(
            lambda: workers.register_worker(self._registration(instance), self._queue.clock.now())
        )
        log.info("worker %s started, %d names known", self.worker_id, len(self._names()))
        return heartbeat

    async def _as_instance(self, heartbeat: Heartbeat, work: Callable[[Claimer], Awaitable[None]]) -> None:
        """Work as a registered instance, drain and sign off."""
        config, now = self._queue.config, self._queue.clock.now
        guard = Guard(heartbeat, self._hand, self._finisher, timeout_seconds=config.worker_timeout_seconds)
        claimer = self._claimer = self._make_claimer(heartbeat.instance, guard)
        reaper = self._reaper(heartbeat)
        lease = config.lock_timeout_seconds
        self._scheduler = Scheduler(
            self._database,
            self._queue.scheduled_task,
            plans=self._queue.declared_schedules,
            known_tasks=self._queue.registry.names(),
            now=now,
        )
        services: tuple[Service, ...] = (
            LeaseKeeper(self._database, self._hand, lease_seconds=lease, now=now),
            self._watch,
            reaper,
            guard,
            *(self._chores(self._scheduler) if work is Claimer.run else ()),
        )
        if self._stopping:
            claimer.stop()
        heartbeat.start()
        for service in services:
            service.start()
        try:
            await self._quietly(reaper.first_sweep)
            await work(claimer)
        except asyncio.CancelledError:
            self._stopping = True
            raise
        finally:
            ending = asyncio.ensure_future(self._end_instance(heartbeat, claimer, services))
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
                if self._lanes.lane is not None:
                    endings.add(self._lanes.lane)
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
            log.error("stopping without the database: what this worker ran is taken back by others: %s", error)  # noqa: TRY400
            signed_off = False
        for service in services:
            await service.stop()
        await asyncio.to_thread(heartbeat.stop)
        if signed_off:
            await self._quietly(lambda: flush(self._database, self._meter, self._queue.clock.now()))
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
        while self._hand.running:
            # Not until each has ended: one that refuses to is abandoned, and leaves the hand all the same.
            endings = [execution.ending for execution in self._hand.running.values()]
            await asyncio.wait(endings, timeout=0.05, return_when=asyncio.FIRST_COMPLETED)
        limit.reschedule(asyncio.get_running_loop().time() + LAST_WORDS_SECONDS)
        await self._finisher.flush()
        if not claimer.unregistered:
            await claimer.release_strays()

    async def _let_finish(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        hurry = asyncio.ensure_future(self._hurry.wait())
        while self._hand.running and not hurry.done() and (left := deadline - time.monotonic()) > 0:
            endings = {execution.ending for execution in self._hand.running.values()}
            await asyncio.wait({*endings, hurry}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()

    def _start(self, task: ClaimedTask) -> Execution:
        definition = self._queue.registry.get(task.name)
        if definition is not None and self._processes.takes(definition, task):
            return ApartExecution(self._runner, task, definition, self._processes, self._start_again)
        if definition is not None and Places.runs_here(definition):
            execution = SteppedExecution(self._runner, task, definition)
            self._lanes.run_alone(execution)
            return execution
        if self._table is not None:
            self._table.begin(task.seq)
        return Execution(self._runner, task, definition)

    def _stepped(self, task: ClaimedTask) -> Definition | None:
        """The definition of a task that begins in a lane."""
        definition = self._queue.registry.get(task.name)
        if definition is None or self._stopping or not Places.runs_here(definition):
            return None
        return None if self._processes.takes(definition, task) else definition

    def _waits(self, execution: SteppedExecution) -> None:
        """A coroutine could not end in one go: it is running, and the rest of the hand goes on."""
        self._hand.running[execution.task.id] = execution
        self._use_free_slots()

    def _runs_apart(self, task: ClaimedTask) -> bool:
        definition = self._queue.registry.get(task.name)
        return definition is not None and self._processes.takes(definition, task)

    def _may_run_ahead(self, task: ClaimedTask) -> bool:
        definition = self._queue.registry.get(task.name)
        return definition is not None and self._processes.has_room(definition, task)

    def _start_again(self, task: ClaimedTask) -> None:
        """A task that could not start where it should: it waits in hand for its turn here."""
        self._hand.finished(task)
        self._hand.buffer.appendleft(task)
        if self._stopping:
            self._hand.give_back(self._finisher.add)
        else:
            self._hand.start_waiting()

    def _ended(self, execution: Execution, ended: Ended) -> None:
        """An attempt is over: record it, and use the free slot."""
        hand = self._hand
        hand.finished(execution.task)
        if self._table is not None:
            self._table.end(execution.task.seq)
        lines = self._watch.take_lines(execution.task)
        if ended is not None or lines:
            self._finisher.add(execution.task, ended, lines)
        if isinstance(ended, Completion):
            self._done += 1
            self._size.took([ended.ended - ended.started])
        else:
            self._done += not (isinstance(ended, Ending) and ended.event is Event.RELEASE)
            self._tell(execution, ended)
            if execution.committed:
                self._meter.note_committed(execution.task, execution.started)
            if len(self._runner.stuck) >= self._settings.max_stuck_threads:
                log.error("%d threads never came back; this worker drains and stops", len(self._runner.stuck))
                self.stop()
        self._use_free_slots()

    def _completed(self, ends: Sequence[tuple[ClaimedTask, Completion]]) -> None:
        """Attempts that ended in one go: record them all, and use the free slots."""
        lines: Lines = {}
        if self._watch.has_notes:
            for task, _ in ends:
                lines |= self._watch.take_lines(task)
        self._finisher.add_completions(ends, lines)
        self._done += len(ends)
        self._size.took([done.ended - done.started for _, done in ends])
        self._use_free_slots()

    def _use_free_slots(self) -> None:
        """The next task in hand starts right here; the claimer wakes up only when it has something to do."""
        hand = self._hand
        if hand.buffer and not self._stopping:
            hand.start_waiting()
        if self._size.next_claim(len(hand.running), len(hand.buffer)):
            self._wake()

    def _recorded(self, batch: Ends, refused: Collection[str]) -> None:
        self._meter.note([(task, ended) for task, ended in batch if task is not None and ended.task_id not in refused])

    def _tell(self, execution: Execution, ended: Ended) -> None:
        task = execution.task
        outcome = ended.event.value if isinstance(ended, Ending) else "nothing to record"
        failed = isinstance(ended, Ending) and ended.error is not None
        reason = summary(ended.error) if isinstance(ended, Ending) and ended.error else ""
        reason = self._redactor.text(reason, task.kwargs, task.headers) if reason else ""
        log.log(
            logging.WARNING if failed else logging.INFO,
            "task %s %s attempt %d: %s%s",
            task.name,
            task.id,
            task.attempts,
            outcome,
            f" ({reason})" if reason else "",
            extra={"task_id": task.id, "task_name": task.name, "attempt": task.attempts, "worker_id": self.worker_id},
        )

    def _hear(self, event: str) -> None:
        """Something happened in the database: there may be work, or another schedule."""
        if self._scheduler is not None and event in ("schedules", "changed"):
            self._scheduler.changed(surely=event == "schedules")
        self._wake()

    def _wake(self) -> None:
        if self._claimer is not None:
            self._claimer.wake()

    def _names(self) -> list[str]:
        return [name for name in self._queue.registry.names() if self._settings.wants(name)]

    def _caps(self) -> Mapping[str, int]:
        """How many more tasks of each limited name this worker may take now."""
        defined = {
            name: definition.options.max_concurrency
            for name, definition in self._queue.registry.items()
            if definition.options.max_concurrency is not None
        }
        limits = self._settings.limits
        return limits.caps(defined, self._hand.count_by_name()) if defined or limits else {}

    def _registration(self, instance: UUID) -> Registration:
        return Registration(
            instance=instance,
            worker_id=self.worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            timeout_seconds=self._queue.config.worker_timeout_seconds,
            concurrency=self._settings.concurrency,
            names=tuple(self._names()),
            info=self._vitals(),
        )

    def _heartbeat(self, instance: UUID) -> Heartbeat:
        loop = asyncio.get_running_loop()

        def declared_dead() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._declared_dead)

        kind = Heartbeat if self._supervisor is None else functools.partial(KeptHeartbeat, self._supervisor)
        return kind(
            self._database,
            instance,
            interval_seconds=self._queue.config.heartbeat_interval_seconds,
            timeout_seconds=self._queue.config.worker_timeout_seconds,
            now=self._queue.clock.now,
            declared_dead=declared_dead,
            vitals=self._vitals,
        )

    def _vitals(self) -> dict[str, Any]:
        return vitals(stuck_threads=len(self._runner.stuck), retention=self._queue.config.retention)

    def _declared_dead(self) -> None:
        if self._claimer is not None:
            self._claimer.unregistered = True
            self._hand.drop([task.id for task in self._hand.held()])
            self._claimer.wake()

    def _make_claimer(self, instance: UUID, guard: Guard) -> Claimer:
        return Claimer(
            self._database,
            self._hand,
            self._finisher,
            self._size,
            instance=instance,
            worker_id=self.worker_id,
            names=self._names,
            caps=self._caps,
            limits=self._settings.limits,
            lease_seconds=self._queue.config.lock_timeout_seconds,
            poll_seconds=self._settings.poll_interval_seconds,
            may_claim=lambda: guard.may_claim,
            now=self._queue.clock.now,
        )

    def _chores(self, scheduler: Scheduler) -> list[Service]:
        """What a worker that stays does beside its tasks."""
        chores: list[Service] = [self._bookkeeper(), scheduler]
        if rules := parse_retention(self._queue.config.retention):
            chores.append(Janitor(self._database, rules, now=self._queue.clock.now))
        return chores

    def _reaper(self, heartbeat: Heartbeat) -> Reaper:
        return Reaper(
            self._database,
            interval_seconds=self._queue.config.worker_timeout_seconds / 3,
            backoff=self._queue.config.backoff,
            may_judge=lambda: heartbeat.is_steady,
            now=self._queue.clock.now,
        )

    def _bookkeeper(self) -> Bookkeeper:
        return Bookkeeper(
            self._database,
            self._meter,
            interval_seconds=max(1.0, self._queue.config.heartbeat_interval_seconds),
            now=self._queue.clock.now,
        )

    async def _quietly(self, step: Callable[[], Awaitable[Any]]) -> None:
        try:
            await step()
        except TaskLibError as error:
            log.warning("%s", error)
