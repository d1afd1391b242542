"""Watching what is held: its leases, requests to cancel it, what was taken away or paused, progress to be written."""

from __future__ import annotations

from tasklib.queue import TaskQueue
from tasklib.storage.operations import attempts
from tasklib.storage.operations.limits.pauses import list_pauses
from tasklib.worker.control import WorkerControl
from tasklib.worker.execution.attempt import StopReason
from tasklib.worker.execution.runner import Runner
from tasklib.worker.upkeep.service import Periodic

WATCH_SECONDS = 0.5
"""How soon a request to cancel or a pause reaches what is held, and how often progress is written, at most."""


class LeaseRenewal(Periodic):
    """Moves the lease of everything held forward, three times before it would end: nobody else may run it."""

    def __init__(self, queue: TaskQueue, runner: Runner) -> None:
        self._lease = queue.config.lock_timeout_seconds
        super().__init__(queue, self._lease / 3)
        self._held = runner.held

    async def step(self) -> None:
        """Renew once, and drop what is no longer this worker's."""
        held = [(task.id, task.version) for task in self._held.tasks()]
        if held:
            lost, _ = await self.database.arun(lambda: attempts.renew_leases(held, lease_seconds=self._lease))
            self._held.drop(lost)


class RequestWatch(Periodic):
    """Sees what shall be cancelled, was taken away or is paused meanwhile, and keeps the progress of tasks visible."""

    def __init__(self, queue: TaskQueue, control: WorkerControl, runner: Runner) -> None:
        super().__init__(queue, WATCH_SECONDS)
        self._control = control
        self._runner = runner
        self._doubted: set[str] = set()

    async def rest(self) -> None:
        """As any service; while nothing is held, until something is."""
        held = self._runner.held
        if not (held.running or held.waiting or self._runner.notes):
            self._control.has_claimed.clear()
        await self._control.has_claimed.wait()
        await super().rest()

    async def step(self) -> None:
        """Write progress and lines, and look for requests, if anything is held."""
        await self._write_notes()
        held = self._runner.held
        running = [
            (each.task.id, each.task.version)
            for each in held.running.values()
            if each.stop_reason is not StopReason.CANCELLED
        ]
        if running:
            lost, cancelled = await self.database.arun(lambda: attempts.find_cancel_requests(running))
            # A transactional task runs no more the moment it commits, a little before its thread reports that: only
            # what was missing at the last look too is dropped.
            held.drop(lost & self._doubted)
            self._doubted = lost
            for attempt in [each for task_id, each in held.running.items() if task_id in cancelled]:
                attempt.stop(StopReason.CANCELLED)
        if held.waiting:
            paused = {pause.name for pause in await self.database.arun(list_pauses)}
            held.give_back_paused(self._runner.finisher, paused)

    async def _write_notes(self) -> None:
        reports, lines = self._runner.notes.take()
        if lines:
            await self.database.arun(lambda: attempts.append_log(lines))
        if reports:
            await self.database.arun(lambda: attempts.report_progress(reports))
