"""Recovering the tasks of dead workers.  Any worker does it, and the HTTP service for its own; there is no leader."""

from __future__ import annotations

import logging
import random

from tasklib.core.time.liveness import LOOKS, Sighting, Watch
from tasklib.queue import TaskQueue
from tasklib.storage.operations import workers
from tasklib.storage.statement import Operation
from tasklib.worker.upkeep.heartbeat import Heartbeat
from tasklib.worker.upkeep.poll_batch import PollBatch
from tasklib.worker.upkeep.service import Periodic

SWEEPS = 2
"""About how many workers of a fleet look for expired leases in each interval; not all of them need to."""
ORPHANS_EVERY = 10
"""After how many intervals, on average over the fleet, one worker scans a part of the table for tasks that no worker
holds."""
LEASE_PATIENCE = 0.5
"""The part of a lease for which an expired one is observed before recovery: a live worker renews three times per lease,
and so once more in this time, even after an outage or a step of the database's clock."""
SHORTEST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 60.0
POLL_WAIT = 1 / 6
"""The part of the interval for which an observation may wait for an idle worker's poll."""

log = logging.getLogger("tasklib.worker")


class Recovery(Periodic):
    """Finds the tasks of dead workers, and those whose lease has expired, and lets them run again.

    In two phases: each observation of the heartbeats goes to its `Watch`; only from workers that were silent for long
    enough, and whose heartbeat has not changed since, are tasks recovered.
    """

    def __init__(
        self, queue: TaskQueue, heartbeat: Heartbeat | None = None, poll_batch: PollBatch | None = None
    ) -> None:
        """With a heartbeat, others are declared dead only while it is steady; without one, by observation alone."""
        config = queue.config
        super().__init__(queue, min(config.worker_timeout_seconds / LOOKS, LONGEST_PAUSE_SECONDS))
        self._backoff = config.backoff
        self._lease_patience = max(config.worker_timeout_seconds, LEASE_PATIENCE * config.lock_timeout_seconds)
        self._heartbeat = heartbeat
        self._poll_batch = poll_batch or PollBatch(queue.database, queue.timing)
        self._watch = Watch(config.worker_timeout_seconds)
        self.fleet = 1
        """How many workers were alive at the last observation."""
        self._orphans_before: int | None = None

    async def first_sweep(self) -> None:
        """Recover orphans: tasks that no known worker holds and whose lease has expired."""
        await self._recover_orphans()

    def pause(self) -> float:
        """Seconds until the next observation, which is due when a worker may be found dead."""
        usual = super().pause()
        return max(SHORTEST_PAUSE_SECONDS, self._watch.next_look_in(self.timing.monotonic(), usual))

    async def step(self) -> None:
        """Observe once, and recover the tasks of workers that were silent for long enough."""
        leases = self._watch.has_leases or random.random() < SWEEPS / self.fleet
        patience = self._lease_patience if leases else None
        asked = 0.0

        def look() -> Operation[list[Sighting]]:
            nonlocal asked
            asked = self.timing.monotonic()
            return workers.look_for_silent(lease_patience=patience)

        seen = await self._poll_batch.run(look, within=self.interval * POLL_WAIT)
        silent = self._watch.note(seen, asked=asked, answered=self.timing.monotonic())
        self.fleet = max(1, sum(each.version is None and not each.is_overdue for each in seen))
        # Checked only now: the observation itself may have spanned an outage.
        if silent and (self._heartbeat is None or self._heartbeat.is_steady):
            self._report(await self.database.arun(lambda: workers.recover_silent(silent, self._backoff)))
        if random.random() < 1 / (ORPHANS_EVERY * self.fleet):
            await self._recover_orphans()

    async def _recover_orphans(self) -> None:
        before = self._orphans_before
        recovery = await self._poll_batch.run(
            lambda: workers.recover_orphans(self._backoff, before=before), within=self.interval * POLL_WAIT
        )
        self._orphans_before = recovery.before
        self._report(recovery)

    def _report(self, recovery: workers.Recovery) -> None:
        if recovery.tasks:
            log.warning("recovered %d tasks from workers that are gone", recovery.tasks)
