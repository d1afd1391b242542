"""Adding what workers have counted to the database's statistics, and keeping those small."""

from __future__ import annotations

from tasklib.queue import TaskQueue
from tasklib.storage.database import Database
from tasklib.storage.operations import statistics
from tasklib.worker.recording.metrics import Metrics
from tasklib.worker.upkeep.service import Periodic


class MetricsService(Periodic):
    """Adds what was counted, and thins the statistics out unless another worker does."""

    def __init__(self, queue: TaskQueue, metrics: Metrics) -> None:
        super().__init__(queue, max(1.0, queue.config.heartbeat_interval_seconds))
        self._metrics = metrics

    async def step(self) -> None:
        """Add, and thin the statistics out if nobody else does."""
        await flush(self.database, self._metrics)
        await self.database.arun(lambda: statistics.keep_statistics())


async def flush(database: Database, metrics: Metrics) -> None:
    """Add what was counted to the statistics, or keep it for the next time."""
    done = metrics.take()
    if not done:
        return
    try:
        # Not repeated by itself: a reply that was lost would count twice.
        await database.arun(lambda: statistics.add_metrics(done), repeatable=False)
    except BaseException:
        metrics.put_back(done)
        raise
