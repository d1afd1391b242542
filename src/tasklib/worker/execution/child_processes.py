"""Attempts in child processes: for tasks that ask for one, and for suspects that may take their process down.

Child processes are started when needed, reused, and replaced after so many tasks or when they end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tasklib.core.lifecycle import Ending
from tasklib.core.outcome import Completion
from tasklib.definition import Definition
from tasklib.errors import ConfigurationError, ProcessNotReady, TaskDefinitionError
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.attempt import Attempt, AttemptRunner, Executor
from tasklib.worker.execution.call import Committed
from tasklib.worker.execution.processes.child import STOP_SECONDS, Child, Job
from tasklib.worker.execution.processes.import_path import Address, address_of, is_importable
from tasklib.worker.execution.processes.introduction import Introduction, is_in_memory
from tasklib.worker.execution.processes.orphan_killer import OrphanKiller
from tasklib.worker.execution.processes.os_process import TERM_SECONDS
from tasklib.worker.execution.running_attempt import Ended, StopReason
from tasklib.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

AHEAD_SECONDS = 0.01
"""Seconds of work, by measured durations, that are sent ahead to a busy child."""
MAX_AHEAD = 128
SMOOTHING = 0.2

log = logging.getLogger("tasklib.worker")


class ChildProcesses(Executor):
    """Runs functions in processes of their own, which can always be ended; as many as tasks run in them at once."""

    name = "process"
    stops_surely = True
    shares_process = False

    def __init__(self, queue: TaskQueue, settings: WorkerSettings, worker_id: str) -> None:
        self._queue = queue
        self._settings = settings
        self._introduction = Introduction(queue, settings, worker_id)
        self._orphan_killer = OrphanKiller()
        self._children: set[Child] = set()
        self._idle: list[Child] = []
        self._jobs: dict[Attempt, Job] = {}
        self._waiting: list[Job] = []
        """Attempts for which there is no child yet."""
        self._addresses: dict[Definition, Address] = {}
        self._unloadable: set[str] = set()
        self._durations: dict[str, float] = {}
        self._is_closed = False
        self._roomy: Child | None = None
        """The child in which `has_room` has just found room."""

    def check(self, definition: Definition) -> None:
        """Refuse a task that asks for a process and cannot have one, with the reason and a remedy."""
        if definition.options.isolation == "process":
            address_of(definition)

    def accepts(self, definition: Definition, task: ClaimedTask) -> bool:
        """Accepts tasks that ask for a process, and suspect tasks if a child process can import them."""
        if definition.options.isolation == "process":
            return True
        if task.lost_count == 0 or definition.name in self._unloadable:
            return False
        return is_importable(definition) and not (definition.options.transactional and is_in_memory(self._queue))

    def has_room(self, attempt: Attempt) -> bool:
        """Very short tasks may be sent ahead to a busy child."""
        definition, task = attempt.definition, attempt.task
        if task.lost_count or definition.options.isolation != "process" or self._waiting:
            return False
        self._roomy = self._nearly_idle(task.name, self._memory_limit(definition))
        return self._roomy is not None

    def start(self, runner: AttemptRunner) -> None:
        """Give attempts to children one by one; if none can be started for a task, only that task fails."""
        loop = asyncio.get_running_loop()
        while True:
            self._roomy = None
            if (attempt := runner.take(self)) is None:
                return
            runner.hold_slot(attempt)
            attempt.work = loop.create_future()
            job = self._jobs[attempt] = Job(attempt, runner, self._memory_limit(attempt.definition))
            try:
                job.address = self._address(attempt.definition)
                self._dispatch(job, self._roomy)
            except (TaskDefinitionError, ConfigurationError) as error:
                loop.call_soon(self.over, job, ProcessNotReady(f"cannot be had: {error}", never=True))
            except Exception as error:  # noqa: BLE001
                loop.call_soon(self.over, job, error)

    def stop(self, attempt: Attempt, reason: StopReason) -> None:
        """End the process if the task is running in it; recall the task if it is still waiting there."""
        job = self._jobs[attempt]
        job.is_ending = True
        if job.child is not None:
            job.child.end(job)
        elif job in self._waiting:
            self._waiting.remove(job)
            self.over(job, None)
        attempt.abandon_later()

    async def close(self) -> None:
        """End every child process, idle ones after their shutdown hooks; when this returns, none is left."""
        self._is_closed = True
        for child in list(self._children):
            if child.jobs:
                child.end_running()
            else:
                child.leave()
        if self._children:
            reaped = [child.reaped for child in self._children]
            _, left = await asyncio.wait(reaped, timeout=STOP_SECONDS + TERM_SECONDS + 1)
            if left:
                log.error("%d child processes do not end; the system does not let them", len(left))
        self._orphan_killer.close()

    def completed(self, ends: Sequence[tuple[Job, Completion]]) -> None:
        """Record tasks that have succeeded, and reuse their slots, together; called once for each task."""
        settled: list[tuple[Attempt, Completion]] = []
        for job, completion in ends:
            attempt = job.attempt
            if attempt.stop_reason is not None or attempt.is_ended:
                self.over(job, completion)
                continue
            del self._jobs[attempt]
            self._took(attempt.task.name, completion.ended - completion.started)
            attempt.settle()
            settled.append((attempt, completion))
        if settled:
            ends[0][0].runner.completed(settled)
            for attempt, _ in settled:
                if attempt.work is not None:
                    attempt.work.set_result(None)

    def over(self, job: Job, result: Any) -> None:
        """Record how a task ended, once: its Completion or Ending, COMMITTED, an exception, or None if we stopped
        it."""
        attempt = job.attempt
        del self._jobs[attempt]
        is_suspect = attempt.definition.options.isolation != "process"
        if isinstance(result, ProcessNotReady) and is_suspect and attempt.stop_reason is None:
            task = attempt.task
            log.warning("task %s %s will run alone in the worker itself: %s", task.name, task.id, result)
            attempt.is_ended = True
            self._unloadable.add(attempt.definition.name)
            job.runner.start_elsewhere(attempt)
        else:
            attempt.end(self._ended(attempt, result))
        if attempt.work is not None:
            attempt.work.set_result(None)

    def freed(self, child: Child) -> None:
        """Keep an idle child for the next job, or end it after `max_tasks_per_child` tasks."""
        if child.tasks >= self._settings.max_tasks_per_child:
            child.leave()
        else:
            self._idle.append(child)
        self._serve_waiting()

    def returned(self, job: Job) -> None:
        """Find another child for a task that its child has not started."""
        if self._is_closed:
            self.over(job, Ending.release(job.task.id, job.task.version))
            return
        try:
            self._dispatch(job)
        except OSError as error:
            self.over(job, error)

    def ended(self, child: Child) -> None:
        """Forget a child that has ended, and start another if tasks are waiting."""
        self._children.discard(child)
        if child in self._idle:
            self._idle.remove(child)
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for job in waiting:
            self.returned(job)

    def _ended(self, attempt: Attempt, result: Any) -> Ended:
        if isinstance(result, Committed):
            return result
        if attempt.stop_reason is StopReason.TIMED_OUT:
            return attempt.stopped()
        if isinstance(result, Completion):
            self._took(attempt.task.name, result.ended - result.started)
        if isinstance(result, Completion | Ending):
            return result
        return attempt.raised(result) if isinstance(result, Exception) else attempt.stopped()

    def _took(self, name: str, seconds: float) -> None:
        known = self._durations.get(name)
        # One slow run replaces the average at once, as in ClaimSize.
        if known is None or seconds > 10 * known:
            self._durations[name] = seconds
        else:
            self._durations[name] = known + SMOOTHING * (seconds - known)

    def _dispatch(self, job: Job, roomy: Child | None = None) -> None:
        """Give the task to an idle child, a new one, or one that is about to be idle (`roomy`, if it is known); else it
        waits for one."""
        limit = job.memory_limit_mb
        child = self._take_idle(limit) or self._start_child(limit) or roomy or self._nearly_idle(job.task.name, limit)
        if child is not None:
            child.run(job)
        else:
            self._waiting.append(job)

    def _take_idle(self, limit: int | None) -> Child | None:
        """An idle child with this memory limit, preferring the one that was busy last."""
        for position in reversed(range(len(self._idle))):
            if self._idle[position].memory_limit_mb == limit:
                return self._idle.pop(position)
        return None

    def _start_child(self, limit: int | None) -> Child | None:
        """A new child; if the maximum is reached, it replaces an idle one."""
        if sum(not child.leaving for child in self._children) >= self._settings.concurrency:
            if not self._idle:
                return None
            self._idle.pop(0).leave()
        child = Child(self._introduction.message(limit), self._orphan_killer, self)
        self._children.add(child)
        return child

    def _nearly_idle(self, name: str, limit: int | None) -> Child | None:
        """The least loaded child in which a task of this name would hardly have to wait."""
        fewest, found = self._depth(name), None
        if fewest < 2:
            return None
        for child in self._children:
            jobs = child.jobs
            if (
                len(jobs) < fewest
                and not (child.leaving or child.recalled or child.is_behind)
                and child.memory_limit_mb == limit
                and child.tasks < self._settings.max_tasks_per_child
                and name in child.loaded
                and (not jobs or jobs[0].task.name == name or self._depth(jobs[0].task.name) > 1)
            ):
                fewest, found = len(jobs), child
        return found

    def _depth(self, name: str) -> int:
        """How many tasks of a name a child may be given at once."""
        return min(MAX_AHEAD, int(AHEAD_SECONDS / max(self._durations.get(name, AHEAD_SECONDS), 1e-5)))

    def _address(self, definition: Definition) -> Address:
        if definition not in self._addresses:
            self._addresses[definition] = address_of(definition)
        if definition.options.transactional and is_in_memory(self._queue):
            raise ConfigurationError(
                f"task {definition.name!r} is transactional and runs in a child process, which cannot reach a database "
                "in this process's memory; use a SQLite file or PostgreSQL"
            )
        return self._addresses[definition]

    def _memory_limit(self, definition: Definition) -> int | None:
        return definition.options.memory_limit_mb or self._settings.memory_limit_mb
