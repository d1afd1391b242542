"""Ending one's own work in time: a worker that others are about to declare dead must not run beside its successor."""

from __future__ import annotations

import logging

from tasklib.worker.intake.held_tasks import HeldTasks
from tasklib.worker.upkeep.finisher import Finisher
from tasklib.worker.upkeep.heartbeat import Heartbeat
from tasklib.worker.upkeep.service import Periodic

STOP_CLAIMING = 2 / 3
GIVE_UP = 0.9
"""Parts of the worker timeout without a heartbeat after which no more is claimed, and what runs is ended."""
LOOKS = 20
"""How often per worker timeout the heartbeat is looked at; by a timer of its own, since everything else may be waiting
for the database."""

log = logging.getLogger("tasklib.worker")


class SelfFence(Periodic):
    """Gives up what is in hand when the heartbeat has not arrived for almost as long as others wait."""

    def __init__(self, heartbeat: Heartbeat, hand: HeldTasks, finisher: Finisher, *, timeout_seconds: float) -> None:
        super().__init__()
        self.interval = timeout_seconds / LOOKS
        self._heartbeat = heartbeat
        self._hand = hand
        self._finisher = finisher

    @property
    def may_claim(self) -> bool:
        """Whether others will count on this instance for long enough to claim more."""
        return self._heartbeat.silence < STOP_CLAIMING

    async def step(self) -> None:
        """End everything that can be ended if it is time.

        Each end is recorded as given back once the database answers, if by then the task is still ours.  A thread
        cannot be ended; it goes on, and the database decides whether its result counts.
        """
        if self._heartbeat.silence < GIVE_UP:
            return
        endable = [e for e in self._hand.running.values() if e.ends_surely and not e.fenced]
        if endable or self._hand.buffer:
            log.error(
                "no heartbeat has arrived for too long; giving up %d tasks", len(endable) + len(self._hand.buffer)
            )
        self._hand.give_back(self._finisher.add)
        for execution in endable:
            execution.fence()
