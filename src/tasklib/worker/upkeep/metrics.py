"""Adding what workers have counted to the database's statistics, and keeping those small."""

from __future__ import annotations

from math import inf

from tasklib.queue import TaskQueue
from tasklib.storage.database import Database
from tasklib.storage.operations import statistics
from tasklib.worker.recording.metrics import Metrics
from tasklib.worker.upkeep.poll_batch import PollBatch
from tasklib.worker.upkeep.service import Periodic

IDLE_LOOK_SECONDS = 30.0
"""How often a worker that has counted nothing looks whether the statistics are to be thinned out: once a minute
somebody does that."""


class MetricsService(Periodic):
    """Adds what was counted, and thins the statistics out unless another worker does."""

    def __init__(self, queue: TaskQueue, metrics: Metrics, poll_batch: PollBatch) -> None:
        super().__init__(queue, max(1.0, queue.config.heartbeat_interval_seconds))
        self._poll_batch = poll_batch
        self._metrics = metrics
        self._looked = -inf

    async def step(self) -> None:
        """Add, and thin the statistics out if nobody else does; while nothing happens here, look less often."""
        now = self.timing.monotonic()
        if await flush(self.database, self._metrics) or now - self._looked >= IDLE_LOOK_SECONDS:
            self._looked = now
            await self._poll_batch.run(lambda: statistics.keep_statistics(), within=self.interval)


async def flush(database: Database, metrics: Metrics) -> bool:
    """Add what was counted to the statistics, or keep it for the next time; False if nothing was."""
    done = metrics.take()
    if not done:
        return False
    try:
        # Not repeated by itself: a reply that was lost would count twice.
        await database.arun(lambda: statistics.add_metrics(done), repeatable=False)
    except BaseException:
        metrics.put_back(done)
        raise
    return True
