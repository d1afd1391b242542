"""The worker: registers, claims, runs and finishes tasks until it is told to stop."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import random
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from tasklib.context import WorkerState
from tasklib.errors import TaskLibError
from tasklib.lifecycle import Ending
from tasklib.storage.operations import attempts, workers
from tasklib.storage.operations.attempts import Claimed, Completion
from tasklib.storage.operations.workers import Registration
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.claimer import ClaimSize
from tasklib.worker.execution import Execution, Runner
from tasklib.worker.finisher import Finisher
from tasklib.worker.liveness import Heartbeat
from tasklib.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

CANCEL_CHECK_SECONDS = 1.0
PROGRESS_SECONDS = 0.5
IDLE_MARGIN_SECONDS = 5.0
MAX_BACKOFF_SECONDS = 5.0
CONTENDED_SECONDS = 0.002

log = logging.getLogger("tasklib.worker")


class Worker:
    """One worker instance; `run` it once."""

    def __init__(self, queue: TaskQueue, settings: WorkerSettings) -> None:
        self._queue = queue
        self._database = queue.database
        self._settings = settings
        self.worker_id = queue.config.worker_id or f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"
        self.instance: UUID = uuid4()
        self.state = WorkerState()
        self._runner = Runner(
            find=queue.registry.get,
            worker_id=self.worker_id,
            state=self.state,
            retry_policy=queue.config.backoff,
            max_result_bytes=queue.config.max_result_bytes,
            report=self._note_progress,
        )
        self._finisher = Finisher(self._database, queue.clock.now)
        self._size = ClaimSize(settings.concurrency, settings.prefetch)
        self._buffer: deque[ClaimedTask] = deque()
        self._running: dict[str, tuple[Execution, asyncio.Task[None]]] = {}
        self._progress: dict[str, tuple[str, int, float, str | None]] = {}
        self._woken = asyncio.Event()
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._dead = asyncio.Event()
        self._done = 0

    async def run(self) -> None:
        """Work until `stop` is called, a signal arrives, or the surrounding task is cancelled; then drain."""
        async with _Signals(self.stop, enabled=self._settings.signals):
            await self._with_hooks(self._work)

    async def run_once(self, limit: int | None) -> int:
        """Run what is due now, each task once, and return how many were run."""
        await self._with_hooks(lambda: self._work_once(limit))
        return self._done

    def stop(self) -> None:
        """Stop claiming and drain; called a second time, stop now."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()
        self._woken.set()

    async def _with_hooks(self, work: Callable[[], Awaitable[None]]) -> None:
        await _call_hooks(self._queue.startup_hooks, self.state)
        try:
            await work()
        finally:
            self._runner.threads.close()
            await _call_hooks(reversed(self._queue.shutdown_hooks), self.state)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()

        def wake(event: str) -> None:
            if event in ("new", "changed", "cancel") and not loop.is_closed():
                loop.call_soon_threadsafe(self._woken.set)

        await self._register()
        unsubscribe = await asyncio.to_thread(self._database.subscribe, wake)
        heartbeat = self._start_heartbeat(loop)
        helpers = [asyncio.ensure_future(each) for each in (self._keep_leases(), self._watch(), self._recover())]
        try:
            await self._claim_forever()
        except asyncio.CancelledError:
            self._stopping.set()
            await asyncio.shield(asyncio.ensure_future(self._drain()))
            raise
        else:
            await self._drain()
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            unsubscribe()
            await asyncio.to_thread(heartbeat.stop)
            await self._forget()

    async def _work_once(self, limit: int | None) -> None:
        await self._register()
        heartbeat = self._start_heartbeat(asyncio.get_running_loop())
        helper = asyncio.ensure_future(self._keep_leases())
        seen: set[str] = set()
        try:
            while limit is None or self._done < limit:
                batch = 100 if limit is None else min(100, limit - self._done)
                claimed = await self._claim(batch)
                fresh = [task for task in claimed.tasks if task.id not in seen]
                for repeated in (task for task in claimed.tasks if task.id in seen):
                    self._finisher.add(Ending.release(repeated.id, repeated.version))
                if not fresh and not claimed.contended:
                    break
                seen.update(task.id for task in fresh)
                self._buffer.extend(fresh)
                while self._buffer or self._running:
                    self._start_buffered()
                    await asyncio.wait([work for _, work in self._running.values()], return_when=asyncio.FIRST_COMPLETED)
                await self._finisher.flush()
        finally:
            helper.cancel()
            await self._drain()
            await asyncio.to_thread(heartbeat.stop)
            await self._forget()

    async def _register(self) -> None:
        registration = Registration(
            instance=self.instance,
            worker_id=self.worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            timeout_seconds=self._queue.config.worker_timeout_seconds,
            concurrency=self._settings.concurrency,
            names=tuple(self._queue.registry.names()),
        )
        await self._database.arun(lambda: workers.register_worker(registration, self._queue.clock.now()))
        log.info("worker %s started with %d tasks known", self.worker_id, len(registration.names))

    async def _forget(self) -> None:
        try:
            await self._database.arun(lambda: workers.forget_worker(self.instance))
        except TaskLibError as error:
            log.warning("could not sign off; others will notice: %s", error)
        log.info("worker %s stopped", self.worker_id)

    def _start_heartbeat(self, loop: asyncio.AbstractEventLoop) -> Heartbeat:
        def declared_dead() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._dead.set)
                loop.call_soon_threadsafe(self._woken.set)

        heartbeat = Heartbeat(
            self._database,
            self.instance,
            interval_seconds=self._queue.config.heartbeat_interval_seconds,
            now=self._queue.clock.now,
            declared_dead=declared_dead,
        )
        heartbeat.start()
        return heartbeat

    async def _claim_forever(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            if self._dead.is_set():
                await self._start_over()
            self._start_buffered()
            wanted = self._size.next_claim(len(self._running), len(self._buffer))
            if wanted == 0:
                await self._sleep(self._settings.poll_interval_seconds)
                continue
            self._woken.clear()
            try:
                claimed = await self._claim(wanted)
                if failures:
                    await self._release_strays()
                    log.info("the database is back")
                failures = 0
            except TaskLibError as error:
                failures += 1
                if failures == 1:
                    log.warning("cannot claim tasks, trying until the database is back: %s", error)
                backoff = min(MAX_BACKOFF_SECONDS, 0.05 * 2 ** min(failures, 8))
                await self._sleep(backoff * random.uniform(0.5, 1))
                continue
            if not claimed.registered:
                self._dead.set()
            elif claimed.tasks:
                self._buffer.extend(claimed.tasks)
            elif claimed.contended:
                await asyncio.sleep(random.uniform(0, CONTENDED_SECONDS))
            else:
                await self._idle(claimed.next_due_in)

    async def _claim(self, limit: int) -> Claimed:
        held = [(task.seq, task.version) for task in self._held()]
        names = self._queue.registry.names()
        return await self._database.arun(
            lambda: attempts.claim_tasks(
                instance=self.instance,
                worker_id=self.worker_id,
                names=names,
                limit=limit,
                lease_seconds=self._queue.config.lock_timeout_seconds,
                held=held,
                now=self._queue.clock.now(),
            ),
            # A claim whose answer was lost may have claimed: it is not sent again, its tasks are found and given back.
            repeatable=False,
        )

    async def _idle(self, next_due_in: float | None) -> None:
        """Nothing is due: ask to be woken, look once more, and sleep until something is."""
        if self._woken.is_set():
            return
        poll = self._settings.poll_interval_seconds
        await self._declare(lambda: workers.declare_idle(self.instance, poll * 2 + IDLE_MARGIN_SECONDS))
        self._woken.clear()
        claimed = await self._claim(max(1, self._size.next_claim(len(self._running), len(self._buffer))))
        if claimed.tasks:
            self._buffer.extend(claimed.tasks)
        else:
            due = claimed.next_due_in if claimed.next_due_in is not None else next_due_in
            await self._sleep(poll if due is None else min(poll, max(0.0, due)))

    async def _declare(self, operation: Callable[[], Any]) -> None:
        await self._database.arun(operation)

    async def _sleep(self, seconds: float) -> None:
        """Sleep until woken, at most this long."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    def _start_buffered(self) -> None:
        while self._buffer and len(self._running) < self._settings.concurrency and not self._stopping.is_set():
            task = self._buffer.popleft()
            execution = Execution(self._runner, task)
            self._running[task.id] = (execution, asyncio.ensure_future(self._execute(execution)))

    async def _execute(self, execution: Execution) -> None:
        task = execution.task
        try:
            ended = await execution.run()
            if ended is not None:
                self._finisher.add(ended)
            self._done += not isinstance(ended, Ending) or ended.event.value != "release"
            if isinstance(ended, Completion):
                self._size.took(ended.ended - ended.started)
        finally:
            self._running.pop(task.id, None)
            self._progress.pop(task.id, None)
            self._woken.set()

    async def _drain(self) -> None:
        """Give back what has not begun, let the rest finish within the grace, then end it and give it back too."""
        self._stopping.set()
        for task in self._buffer:
            self._finisher.add(Ending.release(task.id, task.version))
        self._buffer.clear()
        deadline = time.monotonic() + self._settings.grace_seconds
        while self._running and not self._hurry.is_set() and time.monotonic() < deadline:
            hurry = asyncio.ensure_future(self._hurry.wait())
            works = {work for _, work in self._running.values()}
            await asyncio.wait({*works, hurry}, timeout=deadline - time.monotonic(), return_when=asyncio.FIRST_COMPLETED)
            hurry.cancel()
        for execution, _ in list(self._running.values()):
            execution.release()
        if self._running:
            await asyncio.wait([work for _, work in self._running.values()])
        await self._finisher.flush()

    async def _start_over(self) -> None:
        """This instance was declared dead: nothing it holds is ours any more; go on as a new one."""
        self._buffer.clear()
        for execution, _ in list(self._running.values()):
            execution.fence()
        await self._finisher.flush()
        self.instance = uuid4()
        await self._register()
        self._dead.clear()
        self._start_heartbeat(asyncio.get_running_loop())

    async def _release_strays(self) -> None:
        """Give back tasks that a claim took although its answer never arrived."""
        held = await self._database.arun(lambda: workers.list_held(self.instance))
        ours = {task.id for task in self._held()}
        for task_id, version in held:
            if task_id not in ours:
                self._finisher.add(Ending.release(task_id, version))

    async def _keep_leases(self) -> None:
        """Move the leases forward well before they end."""
        lease = self._queue.config.lock_timeout_seconds
        while True:
            await asyncio.sleep(lease / 3)
            held = [(task.id, task.version) for task in self._held()]
            try:
                lost, _ = await self._database.arun(
                    lambda held=held: attempts.renew_leases(held, lease_seconds=lease, now=self._queue.clock.now())
                )
            except TaskLibError as error:
                log.warning("cannot renew leases: %s", error)
                continue
            self._fence(lost)

    async def _watch(self) -> None:
        """See within a second that a running task shall be cancelled, and keep progress visible."""
        while True:
            await asyncio.sleep(min(CANCEL_CHECK_SECONDS, PROGRESS_SECONDS))
            if not self._running:
                continue
            try:
                await self._write_progress()
                held = [(e.task.id, e.task.version) for e, _ in self._running.values() if not e.cancelled]
                if not held:
                    continue
                lost, cancelled = await self._database.arun(lambda held=held: attempts.find_cancel_requests(held))
            except TaskLibError:
                continue  # The claimer reports an absent database; here the next look will do.
            self._fence(lost)
            for task_id in cancelled:
                if task_id in self._running:
                    self._running[task_id][0].cancel()

    async def _recover(self) -> None:
        """Take over from workers that are gone; any worker does, no leader is needed."""
        interval = self._queue.config.worker_timeout_seconds / 3
        thorough = True
        while True:
            try:
                recovered = await self._database.arun(
                    lambda thorough=thorough: workers.recover_tasks(
                        self._queue.config.backoff, self._queue.clock.now(), thorough=thorough
                    )
                )
                thorough = False
                if recovered:
                    log.warning("recovered %d tasks from workers that are gone", recovered)
            except TaskLibError:
                pass  # The claimer reports an absent database; here the next round will do.
            await asyncio.sleep(interval * random.uniform(0.8, 1.2))

    async def _write_progress(self) -> None:
        reports, self._progress = self._progress, {}
        if reports:
            await self._database.arun(
                lambda: attempts.report_progress(list(reports.values()), self._queue.clock.now())
            )

    def _note_progress(self, task: ClaimedTask, fraction: float, message: str | None) -> None:
        self._progress[task.id] = (task.id, task.version, fraction, message)

    def _fence(self, lost: Iterable[str]) -> None:
        for task_id in lost:
            if task_id in self._running:
                log.warning("task %s was taken from this worker; its work is ended", task_id)
                self._running[task_id][0].fence()
            self._buffer = deque(task for task in self._buffer if task.id != task_id)

    def _held(self) -> list[ClaimedTask]:
        return [*self._buffer, *(execution.task for execution, _ in self._running.values())]


class _Signals:
    """SIGTERM and SIGINT call a function while the block runs; only in the main thread, where signals arrive."""

    def __init__(self, handle: Callable[[], None], *, enabled: bool) -> None:
        self._handle = handle
        self._enabled = enabled and threading.current_thread() is threading.main_thread()

    async def __aenter__(self) -> None:
        if self._enabled:
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self._handle)

    async def __aexit__(self, *_: object) -> None:
        if self._enabled:
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().remove_signal_handler(number)


async def _call_hooks(hooks: Iterable[Callable[..., Any]], state: WorkerState) -> None:
    for hook in hooks:
        outcome = hook(state) if inspect.signature(hook).parameters else hook()
        if inspect.isawaitable(outcome):
            await outcome
