"""Running schedules: every worker watches the clock, and the database lets one of them take each tick."""

from __future__ import annotations

import asyncio
import logging
import random

from tasklib.core.time.timing import Timer
from tasklib.queue import TaskQueue
from tasklib.storage.operations import schedules
from tasklib.storage.operations.clock import read_clock
from tasklib.worker.upkeep.poll_batch import PollBatch
from tasklib.worker.upkeep.service import Periodic

LOOK_SECONDS = 15.0
"""How long the scheduler sleeps at most, unless workers poll less often: a new schedule whose notification was lost is
seen then."""
UNSURE_SECONDS = 1.0

log = logging.getLogger("tasklib.worker")


class Scheduler(Periodic):
    """Sleeps until the next tick, and submits its task."""

    def __init__(self, queue: TaskQueue, poll_batch: PollBatch, *, once: bool = False) -> None:
        """`once`: for one step of a program that may not declare all that workers of its tasks do."""
        super().__init__(queue, max(LOOK_SECONDS, queue.config.poll_interval_seconds))
        self._queue = queue
        self._poll_batch = poll_batch
        self._is_urgent = True
        """Whether a tick may be due: if not, the next look can wait for a poll."""
        self._plans = list(queue.declared_schedules)
        self._known_tasks = [] if once else list(queue.registry.names())
        """A schedule of these that the code does not declare any more is removed."""
        self._declared = False
        self._changed = asyncio.Event()
        self._changed.set()  # The first look comes at once.
        self._looked = 0.0
        self._next_look: float | None = None
        self._later: Timer | None = None

    def changed(self, *, surely: bool) -> None:
        """Look again: now if a schedule was created or changed; at most once a second if that is uncertain."""
        self._is_urgent |= surely
        wait = 0.0 if surely else self._looked + UNSURE_SECONDS - self.timing.monotonic()
        if wait <= 0:
            self._changed.set()
        elif self._later is None:
            self._later = self.timing.call_later(wait, self._look_later)

    def _look_later(self) -> None:
        self._later = None
        self._changed.set()

    async def stop(self) -> None:
        """End between two ticks."""
        if self._later is not None:
            self._later.cancel()
        await super().stop()

    async def rest(self) -> None:
        """Return at the next tick, or after a change."""
        await self.timing.wait(self._changed, self.pause())
        self._changed.clear()

    def pause(self) -> float:
        """Seconds until the next tick; a little while after a failure."""
        if self._failing:
            return random.uniform(0.5, 2)
        return self.interval if self._next_look is None else min(max(self._next_look, 0.0), self.interval)

    async def step(self) -> None:
        """Submit the tasks of ticks that are due; the first time, store the schedules that the code declares."""
        if not self._declared:
            declared_at = await self.database.arun(lambda: read_clock())
            await self.database.arun(lambda: schedules.declare_schedules(self._plans, self._known_tasks, declared_at))
            self._declared = True
        self._looked = self.timing.monotonic()
        within = 0.0 if self._is_urgent or self._next_look is not None else UNSURE_SECONDS
        self._is_urgent = False
        self._next_look = await self._poll_batch.run(lambda: schedules.next_tick(), within=within)
        if self._next_look is not None and self._next_look <= 0:
            if made := await self.database.arun(lambda: schedules.fire_schedules(self._queue.scheduled_task)):
                log.info("schedules made %d tasks", made)
            self._next_look = await self.database.arun(lambda: schedules.next_tick())
