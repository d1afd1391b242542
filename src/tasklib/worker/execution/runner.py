"""Where attempts are made: tasks in hand start in their place, and how they end is recorded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from tasklib.core.context import WorkerState
from tasklib.core.lifecycle import Ending, Event
from tasklib.core.outcome import Completion
from tasklib.core.redaction import Redactor
from tasklib.definition import Definition
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.attempt import Ended, Execution, Runner
from tasklib.worker.execution.call import Caller
from tasklib.worker.execution.coroutine_attempt import CoroutineAttempt, Lanes
from tasklib.worker.execution.end_log import EndLog
from tasklib.worker.execution.executor import Places
from tasklib.worker.execution.process_attempt import ProcessAttempt
from tasklib.worker.execution.thread_attempt import ThreadAttempt
from tasklib.worker.intake.claim_size import ClaimSize
from tasklib.worker.intake.held_tasks import HeldTasks
from tasklib.worker.processes.pool import ChildPool
from tasklib.worker.settings import WorkerSettings
from tasklib.worker.supervisor.running_table import RunningTable
from tasklib.worker.upkeep.finisher import Ends, Finisher, Lines
from tasklib.worker.upkeep.metrics import Metrics
from tasklib.worker.upkeep.watch import RequestWatch

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

log = logging.getLogger("tasklib.worker")


class Workbench:
    """What every instance of one worker has in common: the hand, the places to run in, and the books."""

    def __init__(
        self,
        queue: TaskQueue,
        settings: WorkerSettings,
        *,
        worker_id: str,
        table: RunningTable | None,
        make_room: Callable[[], None],
        wake: Callable[[], None],
        stop: Callable[[], None],
    ) -> None:
        """`make_room` is called when more may be claimed, `wake` when something may have become due by what ended here,
        `stop` when too many threads never came back."""
        config = queue.config
        self._registry = queue.registry
        self._max_stuck = settings.max_stuck_threads
        self._table = table
        self._make_room = make_room
        self._wake = wake
        self._stop = stop
        self.stopping = False
        """Set when nothing that waits in hand shall start any more."""
        self.done = 0
        """Attempts that have ended here, those given back not counted."""
        self.size = ClaimSize(settings.concurrency, settings.prefetch, settings.batch_size)
        self.hand = HeldTasks(
            settings.concurrency,
            self._start,
            stepped=self._stepped,
            go=lambda: self.lanes.go(),
            runs_apart=self._runs_apart,
            may_run_ahead=self._may_run_ahead,
        )
        self.finisher = Finisher(queue.database, queue.clock.now, self._recorded)
        self.meter = Metrics()
        self._end_log = EndLog(worker_id)
        self.state = WorkerState.hiding(Redactor(config.redact_keys))
        self.watch = RequestWatch(queue.database, self.hand, self.finisher.add, now=queue.clock.now)
        caller = Caller(
            lambda: queue.database,
            hooks=queue.middleware,
            max_result_bytes=config.max_result_bytes,
            now=queue.clock.now,
        )
        self._processes = ChildPool(queue, settings, worker_id)
        self._places = Places(caller)
        self.runner = Runner(
            worker_id=worker_id,
            state=self.state,
            places=self._places,
            hooks=queue.middleware,
            error_hooks=queue.error_hooks,
            retry_policy=config.backoff,
            max_result_bytes=config.max_result_bytes,
            report=self.watch.note_progress,
            record=self.watch.note_line,
            is_stopping=lambda: self.stopping,
            ended=self._ended,
        )
        self.lanes = Lanes(
            self.runner,
            take=self.hand.take_stepped,
            waits=self._waits,
            ended=self._completed,
            left=self._use_free_slots,
            table=self._table,
        )

    def check(self, names: Iterable[str]) -> None:
        """Refuse what could never run here."""
        for name in names:
            self._processes.check(self._registry.find(name))

    async def close(self) -> None:
        """End the threads and processes."""
        self._places.close()
        await self._processes.close()

    def _start(self, task: ClaimedTask) -> Execution:
        definition = self._registry.get(task.name)
        if definition is not None and self._processes.takes(definition, task):
            return ProcessAttempt(self.runner, task, definition, self._processes, self._start_again, self._note_running)
        if definition is not None and Places.runs_here(definition):
            execution = CoroutineAttempt(self.runner, task, definition)
            self.lanes.run_alone(execution)
            return execution
        self._note_running(task)
        if definition is not None and not definition.is_async:
            return ThreadAttempt(self.runner, task, definition)
        return Execution(self.runner, task, definition)

    def _note_running(self, task: ClaimedTask) -> None:
        """Whoever finds this process dead counts the task among those that may have killed it."""
        if self._table is not None:
            self._table.begin(task.seq)

    def _stepped(self, task: ClaimedTask) -> Definition | None:
        """The definition of a task that begins in a lane."""
        definition = self._registry.get(task.name)
        if definition is None or self.stopping or not Places.runs_here(definition):
            return None
        return None if self._processes.takes(definition, task) else definition

    def _waits(self, execution: CoroutineAttempt) -> None:
        """A coroutine could not end in one go: it is running, and the rest of the hand goes on."""
        self.hand.running[execution.task.id] = execution
        self._use_free_slots()

    def _runs_apart(self, task: ClaimedTask) -> bool:
        definition = self._registry.get(task.name)
        return definition is not None and self._processes.takes(definition, task)

    def _may_run_ahead(self, task: ClaimedTask) -> bool:
        definition = self._registry.get(task.name)
        return definition is not None and self._processes.has_room(definition, task)

    def _start_again(self, task: ClaimedTask) -> None:
        """A task that could not start where it should: it waits in hand for its turn here."""
        self.hand.finished(task)
        self.hand.buffer.appendleft(task)
        if self.stopping:
            self.hand.give_back(self.finisher.add)
        else:
            self.hand.start_waiting()

    def _ended(self, execution: Execution, ended: Ended) -> None:
        """An attempt is over: record it, and use the free slot."""
        hand = self.hand
        hand.finished(execution.task)
        if self._table is not None:
            self._table.end(execution.task.seq)
        lines = self.watch.take_lines(execution.task)
        if ended is not None or lines:
            self.finisher.add(execution.task, ended, lines)
        if isinstance(ended, Completion):
            self.done += 1
            self.size.took([ended.ended - ended.started])
            self._end_log.succeeded([(execution.task, ended)])
        else:
            self.done += not (isinstance(ended, Ending) and ended.event is Event.RELEASE)
            if isinstance(ended, Ending):
                self._end_log.ended(execution.task, ended)
            else:
                self._end_log.committed(execution.task)
            if execution.committed:
                self.meter.note_committed(execution.task, execution.started)
            if len(self.runner.stuck) >= self._max_stuck:
                log.error("%d threads never came back; this worker drains and stops", len(self.runner.stuck))
                self._stop()
        self._use_free_slots()

    def _completed(self, ends: Sequence[tuple[ClaimedTask, Completion]]) -> None:
        """Attempts that ended in one go: record them all, and use the free slots."""
        lines: Lines = {}
        if self.watch.has_notes:
            for task, _ in ends:
                lines |= self.watch.take_lines(task)
        self.finisher.add_completions(ends, lines)
        self.done += len(ends)
        self.size.took([done.ended - done.started for _, done in ends])
        self._end_log.succeeded(ends)
        self._use_free_slots()

    def _use_free_slots(self) -> None:
        """The next task in hand starts right here; the claimer wakes up only when it has something to do."""
        hand = self.hand
        if hand.buffer and not self.stopping:
            hand.start_waiting()
        if self.size.next_claim(len(hand.running), len(hand.buffer)):
            self._make_room()

    def _recorded(self, batch: Ends, refused: Collection[str]) -> None:
        self.meter.note([(task, ended) for task, ended in batch if task is not None and ended.task_id not in refused])
        if any(isinstance(ended, Ending) for _, ended in batch):
            self._wake()
