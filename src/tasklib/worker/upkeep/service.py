"""The base of the worker's background services: a step repeated until stopped; an outage is logged once."""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod

from tasklib.core.calls.own_tasks import own_task
from tasklib.errors import TaskLibError
from tasklib.queue import TaskQueue
from tasklib.worker.control import WorkflowSignals

log = logging.getLogger("tasklib.worker")


OVERDUE = 1.2
"""The part of an interval after which the claimer's look is overdue, and the service looks itself."""
SHORTEST_SECONDS = 0.001
"""A shorter wait is not worth it."""


class Periodic(ABC):
    """Repeats `step` every `interval` seconds, give or take a fifth, so that many workers do not act at the same
    moment."""

    def __init__(self, queue: TaskQueue, interval: float) -> None:
        self.database = queue.database
        self.timing = queue.timing
        self.interval = interval
        self._loop: asyncio.Task[None] | None = None
        self._failing = False

    def start(self) -> None:
        """Start; the first step comes after one interval."""
        self._loop = own_task(self._repeat())

    async def stop(self) -> None:
        """End between two steps."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    @abstractmethod
    async def step(self) -> None:
        """Do the service's work once."""

    def pause(self) -> float:
        """Seconds until the next step."""
        return self.interval * random.uniform(0.8, 1.2)

    async def rest(self) -> None:
        """Return when the next step is due."""
        await self.timing.sleep(self.pause())

    async def _repeat(self) -> None:
        while True:
            await self.rest()
            try:
                await self.step()
                self._failing = False
            except Exception as error:
                if not self._failing:
                    trace = not isinstance(error, TaskLibError)
                    log.warning("%s failed, trying until it works: %s", type(self).__name__, error, exc_info=trace)
                self._failing = True


class OnSignal(Periodic):
    """Steps after a signal; looks for work itself only while no idle claimer does."""

    def __init__(self, queue: TaskQueue, signals: WorkflowSignals, signal: asyncio.Event) -> None:
        super().__init__(queue, queue.config.poll_interval_seconds)
        self._signals = signals
        self._signal = signal

    async def rest(self) -> None:
        """Return after a signal, or when the claimer has not looked for an interval."""
        await self.signalled()
        self._signal.clear()

    async def signalled(self) -> bool:
        """The same; returns whether there was a signal."""
        if await self.timing.wait(self._signal, self.pause()):
            return True
        while (left := OVERDUE * self.interval - self._signals.seconds_since_look) > SHORTEST_SECONDS:
            if await self.timing.wait(self._signal, left):
                return True
        return False
