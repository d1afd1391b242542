"""Watching held tasks: renewing leases, finding requests to cancel, tasks lost or paused, and writing progress."""

from __future__ import annotations

from tasklib.queue import TaskQueue
from tasklib.storage.operations import attempts
from tasklib.storage.operations.limits.pauses import list_pauses
from tasklib.worker.control import WorkerControl
from tasklib.worker.execution.runner import Runner
from tasklib.worker.execution.running_attempt import StopReason
from tasklib.worker.upkeep.service import Periodic

WATCH_SECONDS = 0.5
"""The longest time until a cancel request or a pause reaches a held task, and between two writes of progress."""


class LeaseRenewal(Periodic):
    """Renews the lease of everything held, three times before it would expire, so that no other worker takes it."""

    def __init__(self, queue: TaskQueue, runner: Runner) -> None:
        self._lease = queue.config.lock_timeout_seconds
        super().__init__(queue, self._lease / 3)
        self._held = runner.held

    async def step(self) -> None:
        """Renew once, and drop tasks that are no longer this worker's."""
        held = {task.id: task.version for task in self._held.tasks()}
        if held:
            lost, _ = await self.database.arun(lambda: attempts.renew_leases(held.items(), lease_seconds=self._lease))
            # An answer may come so late that this worker has claimed some of them anew.
            self._held.drop([held[task_id] for task_id in lost])


class RequestWatch(Periodic):
    """Finds held tasks that must be cancelled, were lost or are paused, and writes the progress of running ones."""

    def __init__(self, queue: TaskQueue, control: WorkerControl, runner: Runner) -> None:
        super().__init__(queue, WATCH_SECONDS)
        self._control = control
        self._runner = runner
        self._doubted: set[int] = set()

    async def rest(self) -> None:
        """As in every service; while nothing is held, until something is."""
        held = self._runner.held
        if not (held.running or held.waiting or self._runner.notes):
            self._control.has_claimed.clear()
        await self._control.has_claimed.wait()
        await super().rest()

    async def step(self) -> None:
        """Write progress and lines, and look for requests, if anything is held."""
        await self._write_notes()
        held = self._runner.held
        running = {
            each.task.id: each.task.version
            for each in held.running.values()
            if each.stop_reason is not StopReason.CANCELLED
        }
        if running:
            gone, cancelled = await self.database.arun(lambda: attempts.find_cancel_requests(running.items()))
            # A transactional task is no longer running once it commits, a little before its thread reports that: only
            # tasks that were missing at the last look too are dropped.
            lost = {running[task_id] for task_id in gone}
            held.drop(lost & self._doubted)
            self._doubted = lost
            for version in [running[task_id] for task_id in cancelled]:
                if (attempt := held.running.get(version)) is not None:
                    attempt.stop(StopReason.CANCELLED)
        if held.waiting:
            paused = {pause.name for pause in await self.database.arun(list_pauses)}
            held.release_paused(self._runner.finisher, paused)

    async def _write_notes(self) -> None:
        reports, lines = self._runner.notes.take()
        if lines:
            await self.database.arun(lambda: attempts.append_log(lines))
        if reports:
            await self.database.arun(lambda: attempts.report_progress(reports))
