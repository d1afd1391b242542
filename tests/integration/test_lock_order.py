"""Bulk writes over the same rows lock them in one order: they wait for each other, and never deadlock."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from tasklib import AsyncTaskContext
from tasklib.core.lifecycle import Ending
from tasklib.storage.operations import attempts
from tasklib.storage.operations.workflows.groups import fold_groups
from tasklib.storage.postgres import database
from tests.fixtures.queues import Face, open_queue

ROWS, ROUNDS = 150, 6


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
        start.wait(180)
        act()

    acts = [renew, report, end, queue.plain.cancel_many, queue.plain.retry_many, queue.plain.recover_stale_tasks]
    with ThreadPoolExecutor(len(acts)) as threads:
        for future in [threads.submit(work, act) for act in acts]:
            future.result(60)
    worker.forget()
    queue.sql("TRUNCATE tasks, tasklib_workers, tasklib_claims")


WORKFLOWS, CHILDREN = 12, 6
ENDED = ["completed", "failed", "cancelled", "buried"]


def test_folds_deletes_cancels_and_retries_of_workflows_never_deadlock(
    newest_postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    """Groups are locked before tasks by everybody, a delete by its trigger too: it leaves them to the fold."""
    monkeypatch.setattr(database, "CONFLICT_TRIES", 1)
    with open_queue(newest_postgres_url) as queue:

        @queue.task(max_retries=0)
        def child(n: int) -> int:
            return n

        @queue.task(max_retries=0, priority=1)
        async def parent(ctx: AsyncTaskContext) -> None:
            flow = queue.plain.flow("two")
            flow.add(child.bind(flow.add(child.bind(flow.add(child.bind(1)).result)).result))
            await ctx.run(flow)

        @queue.task(max_retries=0, priority=1)
        async def mapper(ctx: AsyncTaskContext) -> None:
            await ctx.map(child, [{"n": n} for n in range(CHILDREN)])

        for _ in range(ROUNDS):
            for task in (parent, mapper):
                task.submit_many([{}] * WORKFLOWS)
            queue.process_batch(2 * WORKFLOWS)
            change_workflows_together(queue)
            while queue.do(fold_groups):
                pass
            queue.plain.cancel_many()
            queue.plain.delete_many(state=ENDED)
            while queue.do(fold_groups):
                pass
            assert queue.sql("SELECT id FROM tasks UNION ALL SELECT id FROM tasklib_groups") == []
            assert queue.sql("SELECT * FROM tasklib_tallies") == queue.sql("SELECT * FROM tasklib_edges") == []


def change_workflows_together(queue: Face) -> None:
    """End children in failure, fold, cancel, retry and delete, all at once and again and again."""
    worker = queue.worker("child")
    tasks = worker.claim(WORKFLOWS * CHILDREN).tasks
    start = threading.Barrier(6)

    def end() -> None:
        for part in range(0, len(tasks), 10):
            held = random.sample(tasks[part : part + 10], len(tasks[part : part + 10]))
            endings = [Ending.give_up(task.id, task.version, error="E: e") for task in held]
            queue.do(lambda endings=endings: attempts.end_attempts(endings))

    def fold() -> None:
        queue.do(fold_groups)

    def delete() -> None:
        queue.plain.delete_many(state=ENDED)

    def work(act: Callable[[], object]) -> None:
        start.wait(180)
        for _ in range(4):
            act()

    acts = [end, fold, fold, queue.plain.cancel_many, queue.plain.retry_many, delete]
    with ThreadPoolExecutor(len(acts)) as threads:
        for future in [threads.submit(work, act) for act in acts]:
            future.result(60)
    worker.forget()
