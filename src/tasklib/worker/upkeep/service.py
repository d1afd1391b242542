"""The base of the worker's background services: a step repeated until stopped; an outage is logged once."""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod

from tasklib.core.calls.own_tasks import own_task
from tasklib.errors import TaskLibError
from tasklib.queue import TaskQueue

log = logging.getLogger("tasklib.worker")


class Periodic(ABC):
    """Repeats `step` every `interval` seconds, give or take a fifth, so that many workers do not do it in step."""

    def __init__(self, queue: TaskQueue, interval: float) -> None:
        self.database = queue.database
        self.timing = queue.timing
        self.interval = interval
        self._loop: asyncio.Task[None] | None = None
        self._failing = False

    def start(self) -> None:
        """Begin; the first step comes after one interval."""
        self._loop = own_task(self._repeat())

    async def stop(self) -> None:
        """End between two steps."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    @abstractmethod
    async def step(self) -> None:
        """Do it once."""

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
