"""Child processes for tasks: started when needed, kept warm, replaced when they have run enough or were ended."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING, Any

from tasklib.definition import Definition
from tasklib.errors import ConfigurationError, NotInitialized
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.children import STOP_SECONDS, TERM_SECONDS, Child, Job
from tasklib.worker.forwarding import levels_here
from tasklib.worker.importing import Address, address_of, is_importable, surroundings
from tasklib.worker.settings import WorkerSettings
from tasklib.worker.sweeper import Sweeper

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

log = logging.getLogger("tasklib.worker")


class TaskProcesses:
    """The child processes of one worker; as many as tasks run in them at once."""

    def __init__(self, queue: TaskQueue, settings: WorkerSettings, worker_id: str) -> None:
        self._queue = queue
        self._settings = settings
        self._worker_id = worker_id
        self._sweeper = Sweeper()
        self._children: set[Child] = set()
        self._idle: list[Child] = []
        self._addresses: dict[Definition, Address] = {}
        self._unloadable: set[str] = set()

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
        """Run the task in a child process of its own; an error means that it was not started."""
        address = self._addresses.get(definition)
        if address is None:
            address = self._addresses[definition] = address_of(definition)
        if definition.options.transactional and self._is_in_memory:
            raise ConfigurationError(
                f"task {definition.name!r} is transactional and runs in a child process, which cannot reach a database "
                "in this process's memory; use a SQLite file or PostgreSQL"
            )
        self._take(definition.options.memory_limit_mb or self._settings.memory_limit_mb).run(job, address)

    def refuse(self, definition: Definition) -> None:
        """Take no more tasks of this kind that did not ask for a process."""
        self._unloadable.add(definition.name)

    async def close(self) -> None:
        """End every child process, politely where it is idle; when this returns, none is left."""
        for child in list(self._children):
            if child.job is None:
                child.leave()
            else:
                child.end()
        if self._children:
            gone = [child.gone for child in self._children]
            _, left = await asyncio.wait(gone, timeout=STOP_SECONDS + TERM_SECONDS + 1)
            if left:
                log.error("%d child processes do not end; the system does not let them", len(left))
        self._sweeper.close()

    def _take(self, memory_limit_mb: int | None) -> Child:
        """A child with this limit: an idle one, the warmest first, or a new one."""
        for position in reversed(range(len(self._idle))):
            if self._idle[position].memory_limit_mb == memory_limit_mb:
                return self._idle.pop(position)
        if self._idle and len(self._children) >= self._settings.concurrency:
            self._idle.pop(0).leave()
        child = Child(self._introduce(memory_limit_mb), self._sweeper, freed=self._freed, ended=self._ended)
        self._children.add(child)
        return child

    def _introduce(self, memory_limit_mb: int | None) -> dict[str, Any]:
        """What a child process must know to look like this one to the tasks."""
        return {
            **surroundings(self._queue, self._settings.modules),
            "config": dataclasses.asdict(self._queue.config),
            "is_default": self._is_default and not self._is_in_memory,
            "worker_id": self._worker_id,
            "memory_limit_mb": memory_limit_mb,
            "log_levels": levels_here(),
        }

    def _freed(self, child: Child) -> None:
        if child.tasks >= self._settings.max_tasks_per_child:
            child.leave()
        else:
            self._idle.append(child)

    def _ended(self, child: Child) -> None:
        self._children.discard(child)
        if child in self._idle:
            self._idle.remove(child)

    @property
    def _is_in_memory(self) -> bool:
        return self._queue.config.is_sqlite and getattr(self._queue.database, "path", None) is None

    @property
    def _is_default(self) -> bool:
        from tasklib.default import default_queue

        try:
            return default_queue().registry is self._queue.registry
        except NotInitialized:
            return False
