"""Bulk writes over the same rows lock them in one order: they wait for each other, and never deadlock."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from tasklib.core.lifecycle import Ending
from tasklib.storage.operations import attempts
from tasklib.storage.postgres import database
from tests.fixtures.queues import Face, open_queue

ROWS, ROUNDS = 150, 6


@pytest.mark.timeout(180)
def test_renewals_reports_endings_and_bulk_actions_never_deadlock(
    newest_postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database, "CONFLICT_TRIES", 1)  # a deadlock is an error here, not something to try again
    with open_queue(newest_postgres_url) as queue:
        for _ in range(ROUNDS):
            run_together(queue)


def run_together(queue: Face) -> None:
    """Let everybody who writes many rows do so at once, each naming them in an order of their own."""
    for _ in range(ROWS):
        queue.enqueue("job", id=uuid4(), max_retries=100)  # ids in no order, as other programs make them
    worker = queue.worker()
    tasks = worker.claim(ROWS).tasks
    start = threading.Barrier(6)

    def shuffled() -> list[tuple[str, int]]:
        return random.sample([(task.id, task.version) for task in tasks], ROWS)

    def renew() -> None:
        queue.do(lambda: attempts.renew_leases(shuffled(), lease_seconds=60))

    def report() -> None:
        reports = [(*held, 0.5, None) for held in shuffled()]
        queue.do(lambda: attempts.report_progress(reports))

    def end() -> None:
        endings = [Ending.retry_later(*held, delay=0, error="E: e") for held in shuffled()]
        queue.do(lambda: attempts.end_attempts(endings))

    def work(act: Callable[[], object]) -> None:
        start.wait(60)
        act()

    acts = [renew, report, end, queue.plain.cancel_many, queue.plain.retry_many, queue.plain.recover_stale_tasks]
    with ThreadPoolExecutor(len(acts)) as threads:
        for future in [threads.submit(work, act) for act in acts]:
            future.result(60)
    worker.forget()
    queue.sql("TRUNCATE tasks, tasklib_workers, tasklib_claims")
