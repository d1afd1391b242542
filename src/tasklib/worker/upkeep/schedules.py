"""Running schedules: every worker watches the clock, and the database lets one of them take each tick."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from tasklib.core.calls.own_tasks import own_task
from tasklib.core.timing import Timer
from tasklib.storage.operations import schedules
from tasklib.storage.operations.clock import read_clock

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

LOOK_SECONDS = 15.0
"""How long the scheduler sleeps at most, unless workers poll less often: a schedule made elsewhere, of which no
notification came, is seen then."""
UNSURE_SECONDS = 1.0

log = logging.getLogger("tasklib.worker")


class Scheduler:
    """Sleeps until the next tick, and makes its task."""

    def __init__(self, queue: TaskQueue) -> None:
        self._queue = queue
        self._timing = queue.timing
        self._longest = max(LOOK_SECONDS, queue.config.poll_interval_seconds)
        self._database = queue.database
        self._plans = list(queue.declared_schedules)
        self._known_tasks = list(queue.registry.names())
        self._changed = asyncio.Event()
        self._looked = 0.0
        self._later: Timer | None = None
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Declare what the code declares, then run until stopped."""
        self._loop = own_task(self._run())

    def changed(self, *, surely: bool) -> None:
        """Look again: now if a schedule was made or changed, and if that is not sure, not more than once a second."""
        wait = 0.0 if surely else self._looked + UNSURE_SECONDS - self._timing.monotonic()
        if wait <= 0:
            self._changed.set()
        elif self._later is None:
            self._later = self._timing.call_later(wait, self._look_later)

    def _look_later(self) -> None:
        self._later = None
        self._changed.set()

    async def stop(self) -> None:
        """End between two ticks."""
        if self._later is not None:
            self._later.cancel()
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    async def _run(self) -> None:
        failing, declared = False, False
        while True:
            try:
                if not declared:
                    await self._declare()
                    declared = True
                self._looked = self._timing.monotonic()
                made = await self._database.arun(lambda: schedules.fire_schedules(self._queue.scheduled_task))
                if made:
                    log.info("schedules made %d tasks", made)
                wait = await self._database.arun(lambda: schedules.next_tick())
                failing = False
            except Exception as error:  # noqa: BLE001  whatever it is, ticks go on when it is over
                if not failing:
                    log.warning("cannot run schedules, trying until it works: %s", error)
                failing, wait = True, random.uniform(0.5, 2)
            wait = self._longest if wait is None else min(max(wait, 0.0), self._longest)
            await self._timing.wait(self._changed, wait)
            self._changed.clear()

    async def _declare(self) -> None:
        declared_at = await self._database.arun(lambda: read_clock())
        await self._database.arun(lambda: schedules.declare_schedules(self._plans, self._known_tasks, declared_at))
