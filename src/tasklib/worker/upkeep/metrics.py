"""Adding a worker's counts to the database's statistics, and thinning these out."""

from __future__ import annotations

from math import inf

from tasklib.queue import TaskQueue
from tasklib.storage.database import Database
from tasklib.storage.operations import statistics
from tasklib.worker.recording.metrics import Metrics
from tasklib.worker.upkeep.poll_batch import PollBatch
from tasklib.worker.upkeep.service import Periodic

IDLE_LOOK_SECONDS = 30.0
"""How often a worker without new counts checks whether the statistics must be thinned out: one worker does that once a
minute."""


class MetricsService(Periodic):
    """Adds the worker's counts, and thins the statistics out unless another worker does."""

    def __init__(self, queue: TaskQueue, metrics: Metrics, poll_batch: PollBatch) -> None:
        super().__init__(queue, max(1.0, queue.config.heartbeat_interval_seconds))
        self._poll_batch = poll_batch
        self._metrics = metrics
        self._looked = -inf

    async def step(self) -> None:
        """Add the counts, and thin the statistics out unless another worker does; less often while nothing happens
        here."""
        now = self.timing.monotonic()
        if await flush(self.database, self._metrics) or now - self._looked >= IDLE_LOOK_SECONDS:
            self._looked = now
            await self._poll_batch.run(lambda: statistics.keep_statistics(), within=self.interval)


async def flush(database: Database, metrics: Metrics) -> bool:
    """Add the counts to the statistics, or keep them for the next time; False if there were none."""
    done = metrics.take()
    if not done:
        return False
    try:
        # Not retried automatically: after a lost reply the counts would be added twice.
        await database.arun(lambda: statistics.add_metrics(done), repeatable=False)
    except BaseException:
        metrics.put_back(done)
        raise
    return True
