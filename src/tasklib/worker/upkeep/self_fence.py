"""Ending one's own work in time: a worker that others are about to declare dead must not run beside its successor."""

from __future__ import annotations

import logging

from tasklib.queue import TaskQueue
from tasklib.worker.execution.runner import Runner
from tasklib.worker.execution.running_attempt import StopReason
from tasklib.worker.upkeep.heartbeat import Heartbeat
from tasklib.worker.upkeep.service import Periodic

STOP_CLAIMING = 2 / 3
GIVE_UP = 0.9
"""The parts of the worker timeout without a heartbeat after which claiming stops, and after which running work is
ended."""
LOOKS = 20
"""How often per worker timeout to look for more work to end, once that time has come."""
SHORTEST_PAUSE_SECONDS = 0.01

log = logging.getLogger("tasklib.worker")


class SelfFence(Periodic):
    """Ends the worker's own tasks when no heartbeat has arrived for almost the worker timeout."""

    def __init__(self, queue: TaskQueue, runner: Runner, heartbeat: Heartbeat) -> None:
        self._timeout = queue.config.worker_timeout_seconds
        super().__init__(queue, self._timeout / LOOKS)
        self._heartbeat = heartbeat
        self._runner = runner

    @property
    def may_claim(self) -> bool:
        """Whether the last heartbeat is recent enough to claim more."""
        return self._heartbeat.silence < STOP_CLAIMING

    def pause(self) -> float:
        """Seconds until work may have to be ended; a separate timer, since everything else may be waiting for the
        database."""
        left = (GIVE_UP - self._heartbeat.silence) * self._timeout
        return max(left, SHORTEST_PAUSE_SECONDS) if left > 0 else self.interval

    async def step(self) -> None:
        """End everything that can be ended, once the time has come.

        Each is recorded as released once the database answers, if the task is still ours by then.  A thread
        cannot be ended; it goes on, and the database decides whether its result counts.
        """
        if self._heartbeat.silence < GIVE_UP:
            return
        held = self._runner.held
        running = held.running.values()
        endable = [each for each in running if each.executor.stops_surely and each.stop_reason is not StopReason.FENCED]
        if endable or held.waiting:
            log.error("could not send heartbeats for too long; stopping %d tasks", len(endable) + len(held.waiting))
        held.release_waiting(self._runner.finisher)
        for attempt in endable:
            attempt.stop(StopReason.FENCED)
