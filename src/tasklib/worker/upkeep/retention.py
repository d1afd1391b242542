"""Removing finished tasks and facts after their retention.  Any worker does it, one at a time; there is no leader."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from tasklib.core.retention import Rule, parse_fact_retention, parse_retention
from tasklib.queue import TaskQueue
from tasklib.storage.operations import retention
from tasklib.storage.operations.retention import SweptPage
from tasklib.storage.operations.workflows import facts
from tasklib.storage.statement import Operation
from tasklib.worker.upkeep.poll_batch import PollBatch
from tasklib.worker.upkeep.service import Periodic

EVERY_SECONDS = 30.0
TURN_SECONDS = 60.0
"""How long other workers leave the sweep to the one that has begun it, which may have died."""
FACTS_EVERY_SECONDS = 3600.0
"""How often one of the workers looks for old facts."""
PAUSE_PER_WORK = 29.0
"""The pause after each page, as a multiple of the time it took: a sweep uses about 3 % of one connection's time."""

log = logging.getLogger("tasklib.worker")

T = TypeVar("T")


def retention_services(queue: TaskQueue, poll_batch: PollBatch) -> Sequence[Periodic]:
    """The services that remove what the queue's retention settings no longer keep."""
    rules, facts_kept = parse_retention(queue.config.retention), parse_fact_retention(queue.config.retention)
    tasks = [RetentionService(queue, rules)] if rules else []
    return [*tasks, *([] if facts_kept is None else [FactRetention(queue, facts_kept, poll_batch)])]


class Throttled(Periodic):
    """Works page by page, and pauses much longer than it works, so that other work comes first."""

    async def run_page(self, operation: Callable[[], Operation[T]]) -> T:
        """Do one page, and pause."""
        began = self.timing.monotonic()
        done = await self.database.arun(operation)
        await self.timing.sleep(min(1.0, PAUSE_PER_WORK * (self.timing.monotonic() - began)))
        return done


class RetentionService(Throttled):
    """Deletes finished tasks whose retention has passed, page by page."""

    def __init__(self, queue: TaskQueue, rules: Sequence[Rule]) -> None:
        super().__init__(queue, EVERY_SECONDS)
        self._rules = rules

    async def step(self) -> None:
        """Sweep all rows that may be old enough, once, unless another worker does."""
        deleted = 0
        while (swept := await self.sweep_page()) is not None:
            deleted += swept.deleted
            if not swept.more:
                break
        if deleted:
            log.info("removed %d finished tasks whose retention has passed", deleted)

    async def sweep_page(self) -> SweptPage | None:
        """Sweep the next rows, and pause; None while another worker sweeps."""
        return await self.run_page(lambda: retention.sweep_tasks(self._rules, TURN_SECONDS))


class FactRetention(Throttled):
    """Deletes facts that are too old for any task that has not ended, or is still to be submitted, to rely on."""

    def __init__(self, queue: TaskQueue, kept_seconds: float, poll_batch: PollBatch) -> None:
        super().__init__(queue, EVERY_SECONDS)
        self._kept_seconds = kept_seconds
        self._poll_batch = poll_batch

    async def step(self) -> None:
        """Remove the facts that no task can need, unless a worker has done so within the hour."""
        now = await self._poll_batch.run(
            lambda: facts.begin_fact_sweep(self._kept_seconds, FACTS_EVERY_SECONDS), within=self.interval
        )
        if now is None:
            return
        submitted = await self._find_oldest(now)
        deleted = 0
        while page := await self.run_page(lambda: facts.sweep_facts(submitted, self._kept_seconds)):
            deleted += page
        if deleted:
            log.info("removed %d facts that no task can need any more", deleted)

    async def _find_oldest(self, now: datetime) -> datetime:
        """When the oldest task that has not ended was submitted; `now`, the start of the sweep, if there is none.

        It reads from the first task each time, because an old task that had ended may have been retried.
        """
        after: int | None = 0
        while after is not None:
            page = await self._look(after)
            if page.oldest is not None:
                return min(now, page.oldest)
            after = page.last
        return now

    async def _look(self, after: int) -> facts.LiveTasks:
        return await self.run_page(lambda: facts.look_for_live_tasks(after))
