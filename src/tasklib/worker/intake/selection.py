"""Which tasks a worker claims: the names it defines and accepts, within the limits of this worker alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasklib.definition import secrets_of
from tasklib.queue import TaskQueue
from tasklib.storage.operations.claims import Retries
from tasklib.worker.execution.held_tasks import HeldTasks
from tasklib.worker.settings import WorkerSettings


class TaskSelection:
    """What a claim may take, computed anew for each claim, because handlers and limits may change while the worker
    runs."""

    def __init__(self, queue: TaskQueue, settings: WorkerSettings, held: HeldTasks) -> None:
        self._registry = queue.registry
        self._max_retries = queue.config.max_retries
        self._settings = settings
        self._held = held
        self.lease_seconds = queue.config.lock_timeout_seconds
        self.poll_seconds = settings.poll_interval_seconds
        self.limits = settings.limits
        self.limits.measure_by(queue.timing.monotonic)

    def names(self) -> list[str]:
        """The names of the tasks that the worker runs."""
        return [name for name in self._registry.names() if self._settings.wants(name)]

    def caps(self) -> Mapping[str, int]:
        """How many more tasks of each limited name it may take now."""
        declared = self._declared_limits()
        return self.limits.caps(declared, self._held.count_by_name()) if declared or self.limits else {}

    def retries(self) -> Retries:
        """The `max_retries` of tasks whose rows do not set it."""
        return Retries(self._registry.retries(), self._max_retries)

    def worker_info(self) -> dict[str, Any]:
        """What only this worker knows: its limits, and where the arguments of its tasks hold secrets."""
        found = {name: secrets_of(self._registry.get(name)) for name in self.names()}
        secrets = {name: list(places) for name, places in found.items() if places}
        limits = self.limits.report(self._declared_limits())
        return {**({"limits": limits} if limits else {}), **({"secrets": secrets} if secrets else {})}

    def _declared_limits(self) -> dict[str, int]:
        """The declared `max_concurrency` of each task that has one, for rows of its former names too."""
        return {
            name: definition.options.max_concurrency
            for name, definition in self._registry.items_by_any_name()
            if definition.options.max_concurrency is not None
        }
