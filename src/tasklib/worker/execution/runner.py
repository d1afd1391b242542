"""Starting held tasks, each in its executor, and recording how each attempt ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tasklib.core.calls.middleware import call_end_hooks
from tasklib.core.calls.resources import WorkerState
from tasklib.core.lifecycle import Ending, Event
from tasklib.core.outcome import Completion, Raised, decide
from tasklib.core.redaction import Redactor
from tasklib.definition import TaskOptions
from tasklib.errors import TaskNotRegistered
from tasklib.storage.operations.workflows.marks import BEFORE, MEMBER
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.control import WorkerControl
from tasklib.worker.execution.attempt import Attempt, Executor
from tasklib.worker.execution.call import Caller, Committed
from tasklib.worker.execution.child_processes import ChildProcesses
from tasklib.worker.execution.claim_size import ClaimSize
from tasklib.worker.execution.cluster import cluster_executors
from tasklib.worker.execution.coroutines import Coroutines
from tasklib.worker.execution.held_tasks import HeldTasks
from tasklib.worker.execution.lifetime import begin_within, wait_within
from tasklib.worker.execution.running_attempt import AttemptSettings, Ended
from tasklib.worker.execution.running_table import RunningTable
from tasklib.worker.execution.threads import Threads
from tasklib.worker.recording.end_log import EndLog
from tasklib.worker.recording.finisher import Finisher
from tasklib.worker.recording.metrics import Metrics
from tasklib.worker.recording.notes import Lines, Notes
from tasklib.worker.settings import WorkerSettings
from tasklib.worker.workflows.drivers import WorkflowSettings
from tasklib.worker.workflows.journal import Journal

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

log = logging.getLogger("tasklib.worker")


class Runner:
    """Runs the tasks that one worker holds, across all instances that the worker registers as."""

    def __init__(
        self,
        queue: TaskQueue,
        worker: WorkerSettings,
        *,
        worker_id: str,
        control: WorkerControl,
        running_table: RunningTable | None,
    ) -> None:
        config = queue.config
        self._registry = queue.registry
        self._control = control
        self._table = running_table
        self.settings = AttemptSettings(
            worker_id=worker_id,
            state=WorkerState.hiding(Redactor(config.redact_keys)),
            middleware=queue.middleware,
            error_hooks=queue.error_hooks,
            retry_policy=config.backoff,
            max_result_bytes=config.max_result_bytes,
            timing=queue.timing,
            workflows=WorkflowSettings(queue.timing, queue.middleware, queue.restarts_workflows),
        )
        self._default_timeout = config.default_task_timeout_seconds
        # A cluster says how much it has room for when the first task is there.
        slots = worker.concurrency if worker.executor is None else 1
        self.held = HeldTasks(slots, control)
        self.size = ClaimSize(slots, worker.prefetch, worker.batch_size)
        self.notes = Notes()
        self.metrics = Metrics()
        self.finisher = Finisher(queue.database, self.metrics, control, queue.end_hooks)
        self._end_hooks = queue.end_hooks
        self.journal = Journal(queue.database, control, self.metrics)
        self.database = queue.database
        self.stuck: set[asyncio.Future[Any]] = set()
        """Work that was abandoned and has not ended: threads in native code, coroutines that swallow a cancellation."""
        self._max_stuck = worker.max_stuck_threads
        self.done = 0
        """How many attempts have ended here, not counting released ones."""
        self._end_log = EndLog(worker_id)
        caller = Caller(queue, max_result_bytes=config.max_result_bytes)
        self._processes = ChildProcesses(queue, worker, worker_id)
        # The first that accepts a task runs it.
        self._clusters = cluster_executors(queue, worker, worker_id)
        self._executors: tuple[Executor, ...] = (
            *self._clusters,
            self._processes,
            Coroutines(caller, self.settings, control),
            Threads(caller, queue.timing),
        )

    def check(self, names: Iterable[str]) -> None:
        """Raise for a task that could never run in this worker."""
        for name in names:
            definition = self._registry.find(name)
            self._processes.check(definition)
            for cluster in self._clusters:
                cluster.check(definition)

    async def close(self) -> None:
        """End the threads and processes."""
        for executor in reversed(self._executors):
            await executor.close()

    def hold(self, tasks: Iterable[ClaimedTask]) -> None:
        """Hold claimed tasks, and choose for each, once, the executor that runs it."""
        self.journal.loop = asyncio.get_running_loop()
        for task in tasks:
            definition = self._registry.get(task.name)
            if definition is None:
                unknown = Raised(TaskNotRegistered(task.name))
                self.finisher.add(task, decide(task, unknown, self.settings.retry_policy, TaskOptions()))
                continue
            if (over := begin_within(task, definition.options, self._default_timeout)) is not None:
                ending = decide(task, Raised(over), self.settings.retry_policy, definition.options)
                self.finisher.add(task, ending)
                self._end_log.ended(task, ending)
                continue
            executor = next(each for each in self._executors if each.accepts(definition, task))
            self.held.waiting.append(Attempt(self, task, definition, executor))

    def start_held(self) -> None:
        """Start held tasks in the free slots."""
        waiting = self.held.waiting
        while waiting and not self._control.is_stopping:
            first = waiting[0]
            first.executor.start(self)
            if waiting and waiting[0] is first:
                return  # Its executor will take it later, or there is no slot for it.

    def use_free_slots(self) -> None:
        """Start what is held, and claim more if that is not enough."""
        if self.held.waiting:
            self.start_held()
        if self.size.next_claim(len(self.held.running), len(self.held.waiting)):
            self._control.make_room()

    def has_next(self, executor: Executor) -> bool:
        """Whether an attempt may start in this executor now."""
        return not self._control.is_stopping and self.held.next_for(executor) is not None

    def take(self, executor: Executor) -> Attempt | None:
        """The next attempt that may start in this executor now."""
        attempt = None if self._control.is_stopping else self.held.take(executor)
        if attempt is not None:
            attempt.begin()
            if log.isEnabledFor(logging.DEBUG):
                self._end_log.started(attempt.task)
        return attempt

    def hold_slot(self, attempt: Attempt) -> None:
        """Count an attempt that did not end at once as running: it holds a slot until it ends."""
        self.held.running[attempt.task.version] = attempt

    def note_running(self, attempt: Attempt) -> None:
        """Note that the task runs: if this process dies, the task is a suspect."""
        if self._table is not None:
            self._table.begin(attempt.task.seq)

    def resize(self, slots: int) -> None:
        """Change the concurrency: running attempts continue, and new slots are used at once."""
        self.held.resize(slots)
        self.size.resize(slots)
        self.use_free_slots()

    def start_elsewhere(self, attempt: Attempt) -> None:
        """Put the attempt back at the front, for another executor to accept."""
        self.held.finished(attempt)
        self.hold([attempt.task])
        self.held.waiting.rotate(1)
        if self._control.is_stopping:
            self.held.release_waiting(self.finisher)
        else:
            self.start_held()

    @property
    def holds_children(self) -> bool:
        """Whether a child of a workflow is held, or has ended and is not recorded yet."""
        return any(task.marks & (MEMBER | BEFORE) for task in (*self.held.tasks(), *self.finisher.unrecorded()))

    @property
    def has_too_much_stuck(self) -> bool:
        """Whether so much abandoned work is stuck that the worker should be restarted."""
        return len(self.stuck) >= self._max_stuck

    def abandoned(self, attempt: Attempt) -> None:
        """Log that the attempt's work does not end, and count it as stuck until it does."""
        task, work = attempt.task, attempt.work
        log.error(
            "task %s %s does not end; its %s is abandoned and its late result will be refused",
            task.name,
            task.id,
            attempt.executor.name,
            extra={"task_id": task.id, "task_name": task.name},
        )
        if work is not None:
            self.stuck.add(work)
            work.add_done_callback(self._end_stuck)
        if self.has_too_much_stuck and not self._control.is_stopping:
            log.error("%d threads never came back; this worker drains and stops", len(self.stuck))
            self._control.stop()

    def _end_stuck(self, work: asyncio.Future[Any]) -> None:
        self.stuck.discard(work)
        if not work.cancelled():
            work.exception()  # So that asyncio does not log that it was never retrieved.

    def completed(self, ends: Sequence[tuple[Attempt, Completion]]) -> None:
        """Record attempts that have succeeded, and use the free slots."""
        lines: Lines = {}
        for attempt, _ in ends:
            self._free_slot(attempt)
            if self.notes:
                lines |= self.notes.take_lines(attempt.task)
        completed = [(attempt.task, completion) for attempt, completion in ends]
        self.finisher.add_all(completed, lines)
        self.done += len(ends)
        durations = [completion.ended - completion.started for _, completion in ends]
        self.size.took(durations, ends[-1][1].ended)
        self._end_log.succeeded(completed)
        self.use_free_slots()

    def ended(self, attempt: Attempt, ended: Ended) -> None:
        """Record how an attempt ended, and use the free slot."""
        if isinstance(ended, Completion):
            self.completed([(attempt, ended)])
            return
        task = attempt.task
        self._free_slot(attempt)
        lines = self.notes.take_lines(task)
        if isinstance(ended, Committed):
            self.finisher.add_all((), lines)
            self.metrics.note_committed(task, self.settings.timing.monotonic() - attempt.started)
            self._end_log.committed(task)
            call_end_hooks(self._end_hooks, [task.id])
            if task.marks:
                self._control.workflow_signals.children_ended.set()
        else:
            ran = self.settings.timing.monotonic() - attempt.started
            ended = wait_within(task, attempt.definition.options, ended, ran)
            self.finisher.add_all([(task, ended)], lines)
            self._end_log.ended(task, ended)
        self.done += not (isinstance(ended, Ending) and ended.event is Event.RELEASE)
        self.use_free_slots()

    def _free_slot(self, attempt: Attempt) -> None:
        self.held.finished(attempt)
        if self._table is not None:
            self._table.end(attempt.task.seq)
