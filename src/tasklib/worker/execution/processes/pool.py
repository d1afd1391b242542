"""Child processes for tasks: started when needed, reused, and replaced after so many tasks or when they end."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from typing import TYPE_CHECKING, Any

from tasklib.core.lifecycle import Ending
from tasklib.definition import Definition
from tasklib.errors import ConfigurationError, NotInitialized
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.execution.processes.child import STOP_SECONDS, TERM_SECONDS, Child, Job
from tasklib.worker.execution.processes.import_path import Address, address_of, is_importable, surroundings
from tasklib.worker.execution.processes.log_forwarding import levels_here
from tasklib.worker.execution.processes.orphan_killer import OrphanKiller
from tasklib.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

AHEAD_SECONDS = 0.01
"""Tasks are sent ahead to a child for about as long as this."""
MAX_AHEAD = 32
SMOOTHING = 0.2

log = logging.getLogger("tasklib.worker")


class ChildPool:
    """The child processes of one worker; as many as tasks run in them at once."""

    def __init__(self, queue: TaskQueue, settings: WorkerSettings, worker_id: str) -> None:
        self._queue = queue
        self._settings = settings
        self._worker_id = worker_id
        self._folder = _current_folder()
        self._orphan_killer = OrphanKiller()
        self._children: set[Child] = set()
        self._idle: list[Child] = []
        self._addresses: dict[Definition, Address] = {}
        self._unloadable: set[str] = set()
        self._waiting: list[Job] = []
        self._is_closed = False
        self._durations: dict[str, float] = {}

    def check(self, definition: Definition) -> None:
        """Refuse a task that asks for a process and cannot have one, with the reason and a remedy."""
        if definition.options.isolation == "process":
            address_of(definition)

    def takes(self, definition: Definition, task: ClaimedTask) -> bool:
        """Whether the task runs in a child process: it asks for one, or its worker vanished before and it can."""
        if definition.options.isolation == "process":
            return True
        if task.lost_count == 0 or definition.name in self._unloadable:
            return False
        return is_importable(definition) and not (definition.options.transactional and self._is_in_memory)

    def start(self, definition: Definition, job: Job) -> None:
        """Run the task in a child process; an error means that it was not started."""
        address = self._addresses.get(definition)
        if address is None:
            address = self._addresses[definition] = address_of(definition)
        if definition.options.transactional and self._is_in_memory:
            raise ConfigurationError(
                f"task {definition.name!r} is transactional and runs in a child process, which cannot reach a database "
                "in this process's memory; use a SQLite file or PostgreSQL"
            )
        job.address = address
        job.memory_limit_mb = self._limit(definition)
        self._dispatch(job)

    def has_room(self, definition: Definition, task: ClaimedTask) -> bool:
        """Whether a task may be started beyond those that run at once, because it will wait for next to no time."""
        if task.lost_count or definition.options.isolation != "process" or self._waiting:
            return False
        return self._room(task.name, self._limit(definition)) is not None

    def took(self, name: str, seconds: float) -> None:
        """Note how long a task ran."""
        known = self._durations.get(name)
        # A slow one counts at once, as in ClaimSize.
        if known is None or seconds > 10 * known:
            self._durations[name] = seconds
        else:
            self._durations[name] = known + SMOOTHING * (seconds - known)

    def refuse(self, definition: Definition) -> None:
        """Take no more tasks of this kind that did not ask for a process."""
        self._unloadable.add(definition.name)

    async def close(self) -> None:
        """End every child process, politely where it is idle; when this returns, none is left."""
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

    def _dispatch(self, job: Job) -> None:
        """Give the task to an idle child, a new one, or one that is about to be idle; else it waits for one."""
        limit = job.memory_limit_mb
        child = self._idle_with(limit) or self._make(limit) or self._room(job.task.name, limit)
        if child is not None:
            child.run(job)
        else:
            job.waits_with = self
            self._waiting.append(job)

    def _idle_with(self, limit: int | None) -> Child | None:
        """An idle child with this memory limit, the one that was busy last first."""
        for position in reversed(range(len(self._idle))):
            if self._idle[position].memory_limit_mb == limit:
                return self._idle.pop(position)
        return None

    def _make(self, limit: int | None) -> Child | None:
        """A new child, in the place of an idle one if there are enough."""
        if sum(not child.leaving for child in self._children) >= self._settings.concurrency:
            if not self._idle:
                return None
            self._idle.pop(0).leave()
        child = Child(self._introduce(limit), self._orphan_killer, self)
        self._children.add(child)
        return child

    def _room(self, name: str, limit: int | None) -> Child | None:
        """The child with the fewest tasks before it that a task of this name would not have to wait for."""
        depth = self._depth(name)
        if depth < 2:
            return None
        return min(
            (
                child
                for child in self._children
                if len(child.jobs) < depth
                and not child.leaving
                and not child.recalled
                and child.memory_limit_mb == limit
                and child.tasks < self._settings.max_tasks_per_child
                and child.knows(name)
                and (not child.jobs or self._depth(child.jobs[0].task.name) > 1)
            ),
            key=lambda child: len(child.jobs),
            default=None,
        )

    def _depth(self, name: str) -> int:
        """How many tasks of a name a child may be given at once."""
        return min(MAX_AHEAD, int(AHEAD_SECONDS / max(self._durations.get(name, AHEAD_SECONDS), 1e-5)))

    def _introduce(self, memory_limit_mb: int | None) -> dict[str, Any]:
        """What a child process must know to look like this one to the tasks."""
        return {
            **surroundings(self._queue, self._settings.modules),
            "folder": self._folder,
            "config": dataclasses.asdict(self._queue.config),
            "is_default": self._is_default and not self._is_in_memory,
            "worker_id": self._worker_id,
            "memory_limit_mb": memory_limit_mb,
            "log_levels": levels_here(),
        }

    def freed(self, child: Child) -> None:
        """It takes the next job, or ends when it has run enough."""
        if child.tasks >= self._settings.max_tasks_per_child:
            child.leave()
        else:
            self._idle.append(child)
        self._serve_waiting()

    def ended(self, child: Child) -> None:
        """It has ended: another may start in its place."""
        self._children.discard(child)
        if child in self._idle:
            self._idle.remove(child)
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for job in waiting:
                job.waits_with = None
                self.returned(job)

    def returned(self, job: Job) -> None:
        """Find another child for a task that was not begun where it was."""
        if self._is_closed:
            job.over(Ending.release(job.task.id, job.task.version))
            return
        try:
            self._dispatch(job)
        except OSError as error:
            job.over(error)

    def withdraw(self, job: Job) -> None:
        """End a job that waits for a child."""
        self._waiting.remove(job)
        job.over(None)

    def _limit(self, definition: Definition) -> int | None:
        return definition.options.memory_limit_mb or self._settings.memory_limit_mb

    @property
    def _is_in_memory(self) -> bool:
        return self._queue.config.is_sqlite and getattr(self._queue.database, "path", None) is None

    @property
    def _is_default(self) -> bool:
        from tasklib.queue.default import default_queue

        try:
            return default_queue().registry is self._queue.registry
        except NotInitialized:
            return False


def _current_folder() -> str | None:
    """Where the worker starts.  Children start there too, wherever a task of the worker's has gone with `os.chdir`:
    the program that they import may name its database, and other files, from there."""
    try:
        return os.getcwd()
    except FileNotFoundError:  # somebody has removed it
        return None
