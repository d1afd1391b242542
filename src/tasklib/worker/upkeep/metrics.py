"""Adding what workers have counted to the database's statistics, and keeping those small."""

from __future__ import annotations

from tasklib.core.timing import Timing
from tasklib.storage.database import Database
from tasklib.storage.operations import statistics
from tasklib.worker.recording.metrics import Metrics
from tasklib.worker.upkeep.service import Periodic


class MetricsService(Periodic):
    """Adds what was counted, and thins the statistics out unless another worker does."""

    def __init__(self, database: Database, timing: Timing, metrics: Metrics, *, interval_seconds: float) -> None:
        super().__init__(timing)
        self.interval = interval_seconds
        self._database = database
        self._metrics = metrics

    async def step(self) -> None:
        """Add, and thin the statistics out if nobody else does."""
        await flush(self._database, self._metrics)
        await self._database.arun(lambda: statistics.keep_statistics())


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
